package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"ottla.test/clients/matrix"
)

var balancers = map[string]kgo.GroupBalancer{
	"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func member(m *matrix.Member) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-m.Stop; cancel() }()
	came := func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { m.Came(parts[m.Topic]) }
	went := func(_ context.Context, _ *kgo.Client, parts map[string][]int32) { m.Went(parts[m.Topic]) }
	options := []kgo.Opt{
		kgo.SeedBrokers(m.Bootstrap), kgo.ClientID("franz-go"), kgo.ConsumerGroup(m.Group), kgo.ConsumeTopics(m.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(came), kgo.OnPartitionsRevoked(went), kgo.OnPartitionsLost(went),
		// What was polled is committed before its partition goes.
		kgo.BlockRebalanceOnPoll(),
	}
	if m.Strategy == "consumer" {
		// The protocol of KIP-848, where the broker says how often to ask; sticky is its name for the assignor uniform.
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	} else {
		options = append(options, kgo.Balancers(balancers[m.Strategy]),
			kgo.SessionTimeout(matrix.Session), kgo.HeartbeatInterval(matrix.Heartbeat))
	}
	client, err := kgo.NewClient(options...)
	matrix.Check(err)
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		records := fetches.Records()
		matrix.Check(client.CommitRecords(context.Background(), records...))
		for _, record := range records {
			m.Read(record.Partition, record.Offset)
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}
