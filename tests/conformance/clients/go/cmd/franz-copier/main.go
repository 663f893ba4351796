// Copies a topic in transactions with franz-go, each record once: BOOTSTRAP TRANSACTIONAL_ID INPUT OUTPUT COUNT.
//
// Prints the number of records that were committed after each transaction. Every third transaction is aborted and done
// again. Started again after a crash it goes on where the last committed transaction ended.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// In one transaction.
const records = 25

func main() {
	count, err := strconv.ParseInt(os.Args[5], 10, 64)
	if err != nil {
		fail(err)
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.TransactionalID(os.Args[2]),
		kgo.ConsumerGroup(os.Args[2]),
		kgo.ConsumeTopics(os.Args[3]),
		kgo.DefaultProduceTopic(os.Args[4]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
		// One that was killed is missed for this long.
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
	)
	if err != nil {
		fail(err)
	}
	defer session.Close()
	ctx := context.Background()
	var position int64
	for number := 1; position < count; number++ {
		fetched := session.PollRecords(ctx, records)
		for _, each := range fetched.Errors() {
			fmt.Fprintln(os.Stderr, each.Topic, each.Partition, each.Err)
		}
		some := fetched.Records()
		if len(some) == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			fail(err)
		}
		copied := make([]*kgo.Record, 0, len(some))
		for _, each := range some {
			copied = append(copied, &kgo.Record{Value: each.Value, Partition: 0})
		}
		produced := session.ProduceSync(ctx, copied...).FirstErr()
		if produced != nil {
			fmt.Fprintln(os.Stderr, produced)
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(produced == nil && number%3 != 0))
		if err != nil {
			fail(err)
		}
		if committed {
			position = some[len(some)-1].Offset + 1
			fmt.Println(position)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
