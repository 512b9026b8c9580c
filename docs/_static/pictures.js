// A click on a picture opens it alone, where it can be enlarged.
document.addEventListener("DOMContentLoaded", () => {
  for (const image of document.querySelectorAll("figure.wide > img")) {
    const link = document.createElement("a");
    link.href = image.src;
    image.replaceWith(link);
    link.append(image);
  }
});
