import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group that prints what it does, as tests/integration/share_member.py does.
 * System.nanoTime() is the same monotonic clock as time.monotonic_ns() of Python on Linux.
 */
public class ShareMember {
    private static void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(word).append(' ');
        }
        byte[] bytes = line.append(System.nanoTime()).append('\n').toString().getBytes();
        // One write for each line: a killed process leaves no half of it.
        System.out.write(bytes, 0, bytes.length);
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int work = Integer.parseInt(arguments[5]);
        Properties options = new Properties();
        options.putAll(Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[2],
            "share.acquire.mode", arguments[3],
            "max.poll.records", arguments[4],
            "share.acknowledgement.mode", "explicit",
            "request.timeout.ms", "30000",
            "key.deserializer", ByteArrayDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName()));
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(options);
        consumer.setAcknowledgementCommitCallback((outcomes, error) -> {
            for (Map.Entry<TopicIdPartition, Set<Long>> each : outcomes.entrySet()) {
                for (long offset : each.getValue()) {
                    say(error == null ? "S" : "F", each.getKey().partition(), offset);
                }
            }
        });
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException error) {
                throw new RuntimeException(error);
            }
        }));
        consumer.subscribe(Set.of(topic));
        try {
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    short count = record.deliveryCount().get();
                    say("H", record.partition(), record.offset(), count);
                    Thread.sleep(work);
                    if (count == 1 && new String(record.value()).endsWith("13")) {
                        say("R", record.partition(), record.offset());
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    }
                }
            }
        } catch (WakeupException error) {
            // The process is to end.
        } finally {
            consumer.close(Duration.ofSeconds(10));
        }
    }
}
