package org.apache.kafka.controller;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.server.authorizer.internals.CidrUtils;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Asks Kafka's controller classes. First a line for every change of every feature's level: metadata.version, feature,
 * level before, level asked for, kind, what was said. Then for each line of the input: whether an ACL may have that
 * host (below 4.4-IV1 and from then on), or, of a network and an address, whether the one has the other.
 */
public final class ControllerLines {
    private static final List<UpgradeType> KINDS =
        List.of(UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE);

    private static void change(int metadataVersion, String name, int from, int to) {
        for (UpgradeType kind : KINDS) {
            FeatureControlManager manager = new FeatureControlManager.Builder()
                .setQuorumFeatures(new QuorumFeatures(1, QuorumFeatures.defaultSupportedFeatureMap(false), List.of(1)))
                .setSnapshotRegistry(new SnapshotRegistry(new LogContext()))
                .build();
            manager.replay(new FeatureLevelRecord().setName("metadata.version").setFeatureLevel((short) metadataVersion));
            if (!name.equals("metadata.version") && from > 0)
                manager.replay(new FeatureLevelRecord().setName(name).setFeatureLevel((short) from));
            var result = manager.updateFeatures(Map.of(name, (short) to), Map.of(name, kind), false, 1);
            String said = result.response().isSuccess() ? "" : result.response().message();
            System.out.println(String.join("\t", "" + metadataVersion, name, "" + from, "" + to, kind.name(), said));
        }
    }

    private static String host(String host, boolean networks) {
        try {
            AclControlManager.validateHostPattern(host, networks);
            return "NONE";
        } catch (RuntimeException e) {
            return e.getClass().getSimpleName();
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int from = 7; from <= 33; from++)
            for (int to = -1; to <= 35; to++)
                change(from, "metadata.version", from, to);
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            if (feature.featureName().equals("kraft.version")) continue;
            int most = feature.latestTesting();
            for (int metadataVersion = 7; metadataVersion <= 33; metadataVersion++)
                for (int from = 0; from <= most; from++)
                    for (int to = -1; to <= most + 1; to++)
                        change(metadataVersion, feature.featureName(), from, to);
        }
        System.out.println("hosts");
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            System.out.println(parts.length == 1
                ? host(line, false) + "\t" + host(line, true)
                : "" + CidrUtils.isInRange(parts[1], parts[0]));
        }
    }
}
