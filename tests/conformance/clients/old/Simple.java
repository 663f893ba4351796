import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** Clients of 0.8.2, with the arguments of Groups. They never ask for versions. */
public class Simple {
    static final String BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer";

    public static void main(String[] args) throws Exception {
        List<String> topics = new ArrayList<>(Arrays.asList(args[4].split(",")));
        for (String codec : args[2].split(",")) {
            topics.add(args[1] + codec);
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", args[0]);
            settings.put("compression.type", codec);
            settings.put("linger.ms", "20");
            settings.put("key.serializer", BYTES);
            settings.put("value.serializer", BYTES);
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
            for (int n = 0; n < Integer.parseInt(args[3]); n++) {
                byte[] key = n % 5 == 0 ? null : ("k" + n).getBytes();
                sent.add(producer.send(new ProducerRecord<>(args[1] + codec, 0, key, ("v" + n).getBytes())));
            }
            producer.close();
            for (int n = 0; n < sent.size(); n++)
                if (sent.get(n).get().offset() != n) throw new AssertionError(sent.get(n).get());
        }
        String[] address = args[0].split(":");
        SimpleConsumer consumer = new SimpleConsumer(address[0], Integer.parseInt(address[1]), 30000, 1 << 20, "old");
        for (String topic : topics) read(consumer, topic, args[1] + "group");
        consumer.close();
    }

    static String text(ByteBuffer data) {
        if (data == null) return "null";
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        return new String(bytes);
    }

    static void read(SimpleConsumer consumer, String topic, String group) {
        TopicAndPartition partition = new TopicAndPartition(topic, 0);
        Map<TopicAndPartition, PartitionOffsetRequestInfo> latest =
            Collections.singletonMap(partition, new PartitionOffsetRequestInfo(-1L, 1));
        long end = consumer.getOffsetsBefore(new OffsetRequest(latest, (short) 0, "old")).offsets(topic, 0)[0];
        long at = 0;
        while (at < end) {
            FetchResponse answer = consumer.fetch(
                new FetchRequestBuilder().clientId("old").maxWait(100).addFetch(topic, 0, at, 2000).build());
            if (answer.hasError()) throw new AssertionError(answer.errorCode(topic, 0));
            long before = at;
            for (MessageAndOffset each : answer.messageSet(topic, 0)) {
                System.out.println(topic + " " + each.offset() + " " + text(each.message().key()) + " "
                    + text(each.message().payload()));
                at = each.nextOffset();
            }
            if (at == before) break;  // what is left are control batches
        }
        Map<TopicAndPartition, OffsetAndMetadata> offsets =
            Collections.singletonMap(partition, new OffsetAndMetadata(at, "m", -1L));
        for (short version = 0; version < 2; version++) {
            if (consumer.commitOffsets(new OffsetCommitRequest(group, offsets, 1, "old", version)).hasError())
                throw new AssertionError("not committed");
            System.out.println("committed " + topic + " " + consumer.fetchOffsets(new OffsetFetchRequest(
                group, new ArrayList<>(offsets.keySet()), version, 2, "old")).offsets().get(partition).offset());
        }
    }
}
