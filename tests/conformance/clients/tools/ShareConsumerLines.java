import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Kafka's own share consumers, any number of them in one JVM, driven line by line by a test (`share_consumers.py`). */
public class ShareConsumerLines {
    private static final Map<String, KafkaShareConsumer<String, String>> CONSUMERS = new HashMap<>();
    private static final Map<String, ConsumerRecord<String, String>> RECORDS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = run(line.split(" "));
            } catch (Exception error) {
                answer = "thrown " + error.getClass().getSimpleName() + " " + error.getMessage();
            }
            System.out.println("answer " + answer.replace('\n', ' '));
            System.out.flush();
        }
    }

    private static String run(String[] words) {
        String name = words[1];
        if (words[0].equals("open")) {
            open(name, words);
            return "ok";
        }
        KafkaShareConsumer<String, String> consumer = CONSUMERS.get(name);
        switch (words[0]) {
            case "poll":
                List<String> found = new ArrayList<>();
                RECORDS.keySet().removeIf(each -> each.startsWith(name + " "));
                for (ConsumerRecord<String, String> record
                        : consumer.poll(Duration.ofMillis(Long.parseLong(words[2])))) {
                    String place = record.partition() + "," + record.offset();
                    RECORDS.put(name + " " + place, record);
                    found.add(place + "," + record.deliveryCount().map(String::valueOf).orElse("0") + ","
                        + record.value());
                }
                return String.join(" ", found);
            case "acknowledge":
                AcknowledgeType type = AcknowledgeType.valueOf(words[2]);
                for (String place : Arrays.asList(words).subList(3, words.length))
                    consumer.acknowledge(RECORDS.get(name + " " + place), type);
                return "ok";
            case "commit":
                return consumer.commitSync(Duration.ofSeconds(60)).entrySet().stream()
                    .filter(each -> each.getValue().isPresent())
                    .map(each -> each.getKey().partition() + "," + each.getValue().get().getClass().getSimpleName())
                    .sorted().collect(Collectors.joining(" "));
            case "lock":
                return consumer.acquisitionLockTimeoutMs().map(String::valueOf).orElse("none");
            case "close":
                CONSUMERS.remove(name).close(Duration.ofSeconds(30));
                return "ok";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static void open(String name, String[] words) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, words[2]);
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, words[3]);
        settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, words[5]);
        settings.put(ConsumerConfig.SHARE_ACKNOWLEDGEMENT_MODE_CONFIG, words[6]);
        settings.put(ConsumerConfig.SHARE_ACQUIRE_MODE_CONFIG, words[7]);
        settings.put(ConsumerConfig.CLIENT_ID_CONFIG, name);
        KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(words[4]));
        CONSUMERS.put(name, consumer);
    }
}
