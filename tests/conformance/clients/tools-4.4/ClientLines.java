import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A producer and a consumer of Kafka's own, driven line by line by a test (`test_exchanged_ports.py`). */
public class ClientLines {
    private static KafkaProducer<String, String> producer;
    private static KafkaConsumer<String, String> consumer;
    private static final List<Future<RecordMetadata>> SENT = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = run(line.split(" "));
            } catch (Exception error) {
                answer = "thrown " + error;
            }
            System.out.println("answer " + answer.replace('\n', ' '));
            System.out.flush();
        }
    }

    private static String run(String[] words) throws Exception {
        List<String> found = new ArrayList<>();
        switch (words[0]) {
            case "open":
                open(words[1], words[2]);
                return "ok";
            case "send":
                SENT.add(producer.send(new ProducerRecord<>(words[1], Integer.valueOf(words[2]), "k", words[3])));
                return "ok";
            case "sent":
                for (Future<RecordMetadata> each : SENT) {
                    RecordMetadata at = each.get(60, TimeUnit.SECONDS);
                    found.add(at.partition() + "," + at.offset());
                }
                SENT.clear();
                return String.join(" ", found);
            case "poll":
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(Long.parseLong(words[1]))))
                    found.add(each.partition() + "," + each.offset() + "," + each.value());
                return String.join(" ", found);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static void open(String bootstrap, String topic) {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        List<TopicPartition> partitions = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
    }
}
