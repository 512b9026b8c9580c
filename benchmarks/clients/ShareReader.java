import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The workloads of share groups for Java's client, as in aiokafka_client.py. */
public class ShareReader {
    private static final int PER_CALL = 500;

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean)
            ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static String field(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": \"?([^\",}]+)").matcher(json);
        if (!found.find()) {
            throw new IllegalArgumentException(name + " is missing");
        }
        return found.group(1);
    }

    public static void main(String[] arguments) throws Exception {
        String topic = field(arguments[0], "topic");
        long records = Long.parseLong(field(arguments[0], "records"));
        long size = Long.parseLong(field(arguments[0], "size"));
        boolean isExplicit = arguments[1].equals("share_explicit");
        String group = topic + "-" + ProcessHandle.current().pid();
        Properties options = new Properties();
        options.put("bootstrap.servers", field(arguments[0], "servers"));
        try (Admin admin = Admin.create(options)) {
            ConfigEntry entry = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(Map.of(
                new ConfigResource(ConfigResource.Type.GROUP, group),
                Set.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
        }
        options.putAll(Map.of(
            "group.id", group,
            "max.poll.records", String.valueOf(PER_CALL),
            "share.acknowledgement.mode", isExplicit ? "explicit" : "implicit",
            "key.deserializer", ByteArrayDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName()));
        long begin = System.nanoTime();
        long first = 0;
        long used = 0;
        long few = 0;
        long done = 0;
        long bytes = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(options)) {
            consumer.subscribe(Set.of(topic));
            while (done < records) {
                ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofSeconds(1));
                for (ConsumerRecord<byte[], byte[]> record : found) {
                    bytes += record.value().length;
                    if (isExplicit) {
                        consumer.acknowledge(record);
                    }
                }
                done += found.count();
                if (done > 0 && few == 0) {
                    first = System.nanoTime();
                    used = cpu();
                    few = done;
                }
            }
            consumer.commitSync();
            if (bytes != records * size) {
                throw new IllegalStateException(bytes + " bytes");
            }
            long now = System.nanoTime();
            System.out.printf(
                "{\"records\": %d, \"seconds\": %f, \"rate_after\": %f, \"cpu_after\": %f}%n",
                done, (now - begin) / 1e9, (done - few) * 1e9 / (now - first),
                (cpu() - used) / 1e3 / (done - few));
        }
    }
}
