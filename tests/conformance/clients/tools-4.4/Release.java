package org.apache.kafka.coordinator.group;

import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.message.JoinGroupRequestData;
import org.apache.kafka.common.message.JoinGroupResponseData;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorResult;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.timeline.SnapshotRegistry;

/** What the classes of a release are asked for by other names than those of the other one. */
final class Release {
    private Release() { }

    static GroupCoordinatorShard.Builder builder(GroupCoordinatorConfig groups, ShareGroupConfig shares) {
        var builder = new GroupCoordinatorShard.Builder(groups, new GroupConfigManager(groups, shares));
        builder.withLogContext(new LogContext()).withSnapshotRegistry(new SnapshotRegistry(new LogContext()));
        return builder;
    }

    static CoordinatorResult<?, CoordinatorRecord> join(GroupCoordinatorShard shard, AuthorizableRequestContext context,
            JoinGroupRequestData request, CompletableFuture<JoinGroupResponseData> answer) {
        return shard.classicGroupJoin(context, request, answer, false);
    }
}
