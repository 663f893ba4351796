package org.apache.kafka.coordinator.group;

import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.coordinator.group.streams.StreamsGroupHeartbeatResult;

/** Streams groups are compared with those of 4.4: see tools-4.4, whose class is compiled in the place of this one. */
final class StreamsGroupLines {
    private StreamsGroupLines() { }

    static void dealInTurn(GroupCoordinatorShard shard) { }

    static StreamsGroupHeartbeatRequestData heartbeat(String[] words) {
        throw new UnsupportedOperationException();
    }

    static String show(StreamsGroupHeartbeatResult result) {
        throw new UnsupportedOperationException();
    }

    static String described(GroupCoordinatorShard shard, String group) {
        throw new UnsupportedOperationException();
    }
}
