"use strict";

/* Scores of the search: those of Sphinx, but a guide comes before the glossary. */
var Scorer = {
  score: ([docname, , , , score]) => (docname === "glossary" ? score - 20 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
