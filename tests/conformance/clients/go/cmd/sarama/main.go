// The round of the client matrix with sarama.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"ottla.test/clients/matrix"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func main() {
	if m := matrix.NewMember(); m != nil {
		member(m)
		return
	}
	bootstrap, topic, group := matrix.Arguments()
	report := matrix.New("sarama", "github.com/IBM/sarama")
	client, err := sarama.NewClient(bootstrap, config())
	matrix.Check(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	matrix.Check(err)
	defer admin.Close()

	matrix.Check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: matrix.Partitions, ReplicationFactor: matrix.AsTheBrokerSays}, false))
	described, err := admin.DescribeTopics([]string{topic})
	matrix.Check(err)
	report.Partitions = len(described[0].Partitions)
	for name, codec := range codecs {
		produce(report, bootstrap, topic, name, codec)
	}
	consume(report, admin, bootstrap, topic, group)
	resume(report, bootstrap, topic, group)
	for partition := int32(0); partition < matrix.Partitions; partition++ {
		earliest, err := client.GetOffset(topic, partition, sarama.OffsetOldest)
		matrix.Check(err)
		latest, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		matrix.Check(err)
		report.Earliest[strconv.Itoa(int(partition))] = earliest
		report.Latest[strconv.Itoa(int(partition))] = latest
	}
	report.Deleted = createAndDelete(admin, topic+"-gone")
	report.Print()
}

func produce(report *matrix.Report, bootstrap []string, topic, name string, codec sarama.CompressionCodec) {
	settings := config()
	settings.Producer.Compression = codec
	settings.Producer.Idempotent = true
	settings.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(bootstrap, settings)
	matrix.Check(err)
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, matrix.PerCodec)
	for i := range messages {
		key := matrix.Key(name, i)
		messages[i] = &sarama.ProducerMessage{
			Topic: topic, Partition: int32(i % matrix.Partitions),
			Key: sarama.StringEncoder(key), Value: sarama.StringEncoder(matrix.Value(key)),
			Headers: []sarama.RecordHeader{
				{Key: []byte("codec"), Value: []byte(name)}, {Key: []byte("n"), Value: []byte(strconv.Itoa(i))},
			},
		}
	}
	half := len(messages) / 2
	matrix.Check(producer.SendMessages(messages[:half]))
	if len(report.Produced) == len(codecs)/2 {
		matrix.Middle("writing")
	}
	matrix.Check(producer.SendMessages(messages[half:]))
	report.Produced[name] = len(messages)
}

// reader gives each message to `take`, under a lock, until that says that all have come.
type reader struct {
	lock    sync.Mutex
	take    func(*sarama.ConsumerMessage) bool
	atEnd   func(sarama.ConsumerGroupSession)
	session sync.Once
	stop    context.CancelFunc
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			r.lock.Lock()
			done := r.take(message)
			r.lock.Unlock()
			if done {
				r.session.Do(func() { r.atEnd(session); r.stop() })
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func join(bootstrap []string, topic, group string, r *reader) {
	member, err := sarama.NewConsumerGroup(bootstrap, group, config())
	matrix.Check(err)
	ctx, stop := context.WithTimeout(context.Background(), 4*time.Minute)
	r.stop = stop
	for ctx.Err() == nil {
		err := member.Consume(ctx, []string{topic}, r)
		if errors.Is(err, sarama.ErrNotCoordinatorForConsumer) || errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable) {
			continue // the coordinator has moved: it is looked for again
		}
		matrix.Check(err)
	}
	if ctx.Err() == context.DeadlineExceeded {
		matrix.Check(ctx.Err())
	}
	matrix.Check(member.Close())
}

// consume reads everything in a group and commits a little before the end of each partition.
func consume(report *matrix.Report, admin sarama.ClusterAdmin, bootstrap []string, topic, group string) {
	next := map[int32]int64{}
	join(bootstrap, topic, group, &reader{
		take: func(m *sarama.ConsumerMessage) bool {
			headers := map[string]string{}
			for _, header := range m.Headers {
				headers[string(header.Key)] = string(header.Value)
			}
			report.Count(m.Key, m.Value, headers)
			next[m.Partition] = m.Offset + 1
			return report.Read() == report.Total()
		},
		atEnd: func(session sarama.ConsumerGroupSession) {
			matrix.Middle("end")
			groups, err := admin.DescribeConsumerGroups([]string{group})
			for attempt := 0; attempt < 100 && err != nil; attempt++ { // by a connection that a restart has closed
				groups, err = admin.DescribeConsumerGroups([]string{group})
			}
			matrix.Check(err)
			report.GroupState, report.GroupMembers = groups[0].State, len(groups[0].Members)
			for partition, offset := range next {
				session.MarkOffset(topic, partition, offset-matrix.Again, "")
			}
			// Commit does not say that the coordinator has moved; the next one goes to the new one.
			for attempt := 0; attempt < 100 && !isCommitted(admin, topic, group, next); attempt++ {
				session.Commit()
			}
		},
	})
	committed, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1}})
	matrix.Check(err)
	for partition, block := range committed.Blocks[topic] {
		report.Committed[strconv.Itoa(int(partition))] = block.Offset
	}
}

func isCommitted(admin sarama.ClusterAdmin, topic, group string, next map[int32]int64) bool {
	found, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1}})
	matrix.Check(err)
	for partition, offset := range next {
		if block := found.GetBlock(topic, partition); block == nil || block.Offset != offset-matrix.Again {
			return false
		}
	}
	return true
}

// resume joins again: only what was not committed comes back.
func resume(report *matrix.Report, bootstrap []string, topic, group string) {
	join(bootstrap, topic, group, &reader{
		take: func(m *sarama.ConsumerMessage) bool {
			if m.Offset < report.Committed[strconv.Itoa(int(m.Partition))] {
				matrix.Check(fmt.Errorf("offset %d came again", m.Offset))
			}
			report.Resumed++
			return report.Resumed == matrix.Again*matrix.Partitions
		},
		atEnd: func(sarama.ConsumerGroupSession) {},
	})
}

func createAndDelete(admin sarama.ClusterAdmin, name string) bool {
	matrix.Check(admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: matrix.AsTheBrokerSays}, false))
	matrix.Check(admin.DeleteTopic(name))
	left, err := admin.ListTopics()
	matrix.Check(err)
	_, there := left[name]
	return !there
}
