// The round of the client matrix with franz-go.
package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ottla.test/clients/matrix"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	if m := matrix.NewMember(); m != nil {
		member(m)
		return
	}
	bootstrap, topic, group := matrix.Arguments()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	report := matrix.New("franz-go", "github.com/twmb/franz-go")
	admin := fresh(bootstrap)
	created, err := admin.CreateTopic(ctx, matrix.Partitions, matrix.AsTheBrokerSays, nil, topic)
	matrix.Check(err)
	matrix.Check(created.Err)
	topics, err := admin.ListTopics(ctx, topic)
	matrix.Check(err)
	report.Partitions = len(topics[topic].Partitions)

	for name, codec := range codecs {
		produce(ctx, report, bootstrap, topic, name, codec)
	}
	consume(ctx, report, bootstrap, topic, group)
	resume(ctx, report, bootstrap, topic, group)

	admin.Close()
	admin = fresh(bootstrap)
	defer admin.Close()
	earliest, err := admin.ListStartOffsets(ctx, topic)
	matrix.Check(err)
	latest, err := admin.ListEndOffsets(ctx, topic)
	matrix.Check(err)
	earliest.Each(func(o kadm.ListedOffset) { report.Earliest[strconv.Itoa(int(o.Partition))] = o.Offset })
	latest.Each(func(o kadm.ListedOffset) { report.Latest[strconv.Itoa(int(o.Partition))] = o.Offset })
	report.Deleted = createAndDelete(ctx, admin, topic+"-gone")
	report.Print()
}

// fresh returns a client whose connections are new: one that a broker has closed meanwhile fails the next request.
func fresh(bootstrap []string) *kadm.Client {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...))
	matrix.Check(err)
	return kadm.NewClient(client)
}

// produce writes with idempotence, as franz-go does by itself.
func produce(ctx context.Context, report *matrix.Report, bootstrap []string, topic, name string, codec kgo.CompressionCodec) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	matrix.Check(err)
	defer client.Close()
	records := make([]*kgo.Record, matrix.PerCodec)
	for i := range records {
		key := matrix.Key(name, i)
		records[i] = &kgo.Record{
			Key: []byte(key), Value: []byte(matrix.Value(key)), Partition: int32(i % matrix.Partitions),
			Headers: []kgo.RecordHeader{
				{Key: "codec", Value: []byte(name)}, {Key: "n", Value: []byte(strconv.Itoa(i))},
			},
		}
	}
	half := len(records) / 2
	matrix.Check(client.ProduceSync(ctx, records[:half]...).FirstErr())
	if len(report.Produced) == len(codecs)/2 {
		matrix.Middle("writing")
	}
	matrix.Check(client.ProduceSync(ctx, records[half:]...).FirstErr())
	report.Produced[name] = len(records)
}

func joined(bootstrap []string, topic, group string) *kgo.Client {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	matrix.Check(err)
	return client
}

// consume reads everything in a group and commits a little before the end of each partition.
func consume(ctx context.Context, report *matrix.Report, bootstrap []string, topic, group string) {
	client := joined(bootstrap, topic, group)
	defer client.Close()
	next := map[int32]int64{}
	for report.Read() < report.Total() {
		fetches := client.PollFetches(ctx)
		matrix.Check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			headers := map[string]string{}
			for _, header := range r.Headers {
				headers[header.Key] = string(header.Value)
			}
			report.Count(r.Key, r.Value, headers)
			next[r.Partition] = r.Offset + 1
		})
	}
	matrix.Middle("end")
	admin := fresh(bootstrap)
	defer admin.Close()
	groups, err := admin.DescribeGroups(ctx, group)
	matrix.Check(err)
	report.GroupState, report.GroupMembers = groups[group].State, len(groups[group].Members)
	commits := map[int32]kgo.EpochOffset{}
	for partition, offset := range next {
		commits[partition] = kgo.EpochOffset{Epoch: -1, Offset: offset - matrix.Again}
	}
	client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{topic: commits}, nil)
	committed, err := admin.FetchOffsets(ctx, group)
	matrix.Check(err)
	committed.Each(func(o kadm.OffsetResponse) {
		matrix.Check(o.Err)
		report.Committed[strconv.Itoa(int(o.Partition))] = o.At
	})
}

// resume joins again: only what was not committed comes back.
func resume(ctx context.Context, report *matrix.Report, bootstrap []string, topic, group string) {
	client := joined(bootstrap, topic, group)
	defer client.Close()
	for report.Resumed < matrix.Again*matrix.Partitions {
		fetches := client.PollFetches(ctx)
		matrix.Check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < report.Committed[strconv.Itoa(int(r.Partition))] {
				matrix.Check(fmt.Errorf("offset %d came again", r.Offset))
			}
			report.Resumed++
		})
	}
}

func createAndDelete(ctx context.Context, admin *kadm.Client, name string) bool {
	_, err := admin.CreateTopic(ctx, 1, matrix.AsTheBrokerSays, nil, name)
	matrix.Check(err)
	deleted, err := admin.DeleteTopic(ctx, name)
	matrix.Check(err)
	matrix.Check(deleted.Err)
	left, err := admin.ListTopics(ctx)
	matrix.Check(err)
	return !left.Has(name)
}
