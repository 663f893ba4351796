package main

import (
	"context"

	"github.com/IBM/sarama"

	"ottla.test/clients/matrix"
)

var strategies = map[string]sarama.BalanceStrategy{
	"range": sarama.NewBalanceStrategyRange(), "roundrobin": sarama.NewBalanceStrategyRoundRobin(),
}

type committer struct{ *matrix.Member }

func (c committer) Setup(session sarama.ConsumerGroupSession) error {
	c.Came(session.Claims()[c.Topic])
	return nil
}

func (c committer) Cleanup(session sarama.ConsumerGroupSession) error {
	c.Went(session.Claims()[c.Topic])
	return nil
}

func (c committer) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			session.MarkMessage(message, "")
			session.Commit()
			c.Read(message.Partition, message.Offset)
		}
	}
}

func member(m *matrix.Member) {
	settings := config()
	settings.ClientID = "sarama"
	settings.Consumer.Group.Session.Timeout = matrix.Session
	settings.Consumer.Group.Heartbeat.Interval = matrix.Heartbeat
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[m.Strategy]}
	group, err := sarama.NewConsumerGroup([]string{m.Bootstrap}, m.Group, settings)
	matrix.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-m.Stop; cancel() }()
	for ctx.Err() == nil {
		matrix.Check(group.Consume(ctx, []string{m.Topic}, committer{m}))
	}
	matrix.Check(group.Close())
}
