import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** Writes what clients push into files: "number client-instance-id last-or-not content-type". */
public class PushReceiver implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    private final AtomicInteger count = new AtomicInteger();
    private Path folder;

    public void configure(Map<String, ?> configs) {
        folder = Path.of(configs.get("push.receiver.folder").toString());
    }

    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        byte[] bytes = new byte[payload.data().remaining()];
        payload.data().duplicate().get(bytes);
        String name = String.format("%06d %s %s %s", count.incrementAndGet(), payload.clientInstanceId(),
            payload.isTerminating(), payload.contentType().replace('/', '_'));
        try {
            Path part = Files.createTempFile(folder, "part", ".part");
            Files.write(part, bytes);
            Files.move(part, folder.resolve(name));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    public void init(List<KafkaMetric> metrics) { }

    public void metricChange(KafkaMetric metric) { }

    public void metricRemoval(KafkaMetric metric) { }

    public void close() { }
}
