package org.apache.kafka.coordinator.group.assignor;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Kafka's own assignors, asked line by line: NAME same|mixed COUNT,COUNT,... MEMBER/INSTANCE/TOPIC,.../TOPIC.PARTITION,...
 * The answer names the members in the order in which Kafka went through them.
 */
public class AssignorLines {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = run(line.split(" "));
            } catch (Throwable error) {
                answer = "thrown " + error;
            }
            System.out.println("answer " + answer + "|");
            System.out.flush();
        }
    }

    private static String run(String[] words) {
        ConsumerGroupPartitionAssignor assignor = words[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        String[] counts = words[2].split(",");
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (int index = 3; index < words.length; index++) {
            String[] parts = words[index].split("/", -1);
            Set<Uuid> topics = new HashSet<>();
            for (String topic : parts[2].isEmpty() ? new String[0] : parts[2].split(","))
                topics.add(id(topic));
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            for (String each : parts[3].isEmpty() ? new String[0] : parts[3].split(",")) {
                String[] place = each.split("\\.");
                int partition = Integer.parseInt(place[1]);
                assigned.computeIfAbsent(id(place[0]), __ -> new HashSet<>()).add(partition);
                owners.computeIfAbsent(id(place[0]), __ -> new HashMap<>()).put(partition, parts[0]);
            }
            Optional<String> instance = parts[1].isEmpty() ? Optional.empty() : Optional.of(parts[1]);
            members.put(parts[0], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(Collections.unmodifiableMap(assigned))));
        }
        SubscriptionType type = words[1].equals("same") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        var assigned = assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return Integer.parseInt(counts[(int) topic.getLeastSignificantBits()]);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                throw new IllegalStateException("an assignor asks for racks");
            }
        }).members();
        List<String> answer = new ArrayList<>();
        for (String member : members.keySet()) {
            Map<Long, Set<Integer>> mine = new TreeMap<>();
            if (assigned.containsKey(member))
                assigned.get(member).partitions().forEach((topic, partitions) -> {
                    if (!partitions.isEmpty()) mine.put(topic.getLeastSignificantBits(), new TreeSet<>(partitions));
                });
            List<String> places = new ArrayList<>();
            mine.forEach((topic, partitions) -> partitions.forEach(partition -> places.add(topic + "." + partition)));
            answer.add(member + "/" + String.join(",", places));
        }
        return String.join(" ", answer);
    }

    private static Uuid id(String topic) {
        return new Uuid(1, Long.parseLong(topic));
    }
}
