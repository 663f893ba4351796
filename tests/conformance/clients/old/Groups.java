import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Clients of 0.10 to 2.0: bootstrap, prefix, codecs, records of each, other topics, records of all. */
public class Groups {
    static final String BYTES = "org.apache.kafka.common.serialization.ByteArray";

    public static void main(String[] args) throws Exception {
        List<String> topics = new ArrayList<>(Arrays.asList(args[4].split(",")));
        for (String codec : args[2].split(",")) {
            topics.add(args[1] + codec);
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", args[0]);
            settings.put("compression.type", codec);
            settings.put("linger.ms", 20);
            settings.put("key.serializer", BYTES + "Serializer");
            settings.put("value.serializer", BYTES + "Serializer");
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
                for (int n = 0; n < Integer.parseInt(args[3]); n++) {
                    byte[] key = n % 5 == 0 ? null : ("k" + n).getBytes();
                    sent.add(producer.send(new ProducerRecord<>(args[1] + codec, 0, key, ("v" + n).getBytes())));
                }
            }
            for (int n = 0; n < sent.size(); n++)
                if (sent.get(n).get().offset() != n) throw new AssertionError(sent.get(n).get());
        }
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1] + "group");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", BYTES + "Deserializer");
        settings.put("value.deserializer", BYTES + "Deserializer");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(topics);
            int left = Integer.parseInt(args[5]);
            while (left > 0)
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(1000L)) {
                    left--;
                    String key = record.key() == null ? "null" : new String(record.key());
                    System.out.println(record.topic() + " " + record.offset() + " " + key + " "
                        + new String(record.value()));
                }
            consumer.commitSync();
            for (String topic : topics)
                System.out.println("committed " + topic + " "
                    + consumer.committed(new TopicPartition(topic, 0)).offset());
        }
    }
}
