// Package matrix holds what the Go programs share: the records they write, how they check them, and the report.
package matrix

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// PerCodec is how many records each codec writes; Again is how many per partition a resumed group must see again.
const (
	PerCodec   = 50
	Partitions = 2
	Again      = 5
	// AsTheBrokerSays is a topic's number of replicas where that is left to the cluster.
	AsTheBrokerSays = -1
)

// Report is the line of JSON that a program prints.
type Report struct {
	Client       string           `json:"client"`
	Version      string           `json:"version"`
	Partitions   int              `json:"partitions"`
	Produced     map[string]int   `json:"produced"`
	Consumed     map[string]int   `json:"consumed"`
	Repeated     int              `json:"repeated"`
	GroupState   string           `json:"group_state"`
	GroupMembers int              `json:"group_members"`
	Committed    map[string]int64 `json:"committed"`
	Resumed      int              `json:"resumed"`
	Earliest     map[string]int64 `json:"earliest"`
	Latest       map[string]int64 `json:"latest"`
	Deleted      bool             `json:"deleted"`
	Seconds      float64          `json:"seconds"`

	started time.Time
	seen    map[string]bool
}

// New starts a report; version is that of the client's module in the binary.
func New(client, module string) *Report {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				version = strings.TrimPrefix(dependency.Version, "v")
			}
		}
	}
	return &Report{
		Client: client, Version: version, Produced: map[string]int{}, Consumed: map[string]int{},
		Committed: map[string]int64{}, Earliest: map[string]int64{}, Latest: map[string]int64{}, started: time.Now(),
		seen: map[string]bool{},
	}
}

// Arguments are the bootstrap addresses, the topic and the group.
func Arguments() ([]string, string, string) {
	if len(os.Args) != 4 {
		Check(fmt.Errorf("usage: %s BOOTSTRAP TOPIC GROUP", os.Args[0]))
	}
	return strings.Split(os.Args[1], ","), os.Args[2], os.Args[3]
}

// Key and Value are the i-th record of a codec; its headers are codec and n.
func Key(codec string, i int) string { return fmt.Sprintf("%s-%d", codec, i) }

// Value follows from the key.
func Value(key string) string { return key + ":" + strings.Repeat("x", 100) }

// Count checks a record that was read and counts it under its codec; one that came before, because the member had to join
// again before it had committed, is counted apart.
func (r *Report) Count(key, value []byte, headers map[string]string) {
	codec, n := headers["codec"], headers["n"]
	if string(key) != codec+"-"+n || string(value) != Value(string(key)) {
		Check(fmt.Errorf("not what was written: key %q, value %q, headers %v", key, value, headers))
	}
	if r.seen[string(key)] {
		r.Repeated++
		return
	}
	r.seen[string(key)] = true
	r.Consumed[codec]++
	if r.Read() == r.Total()/2 {
		Middle("reading")
	}
}

// Read is how many records were read, each counted once.
func (r *Report) Read() int { return len(r.seen) }

var input = bufio.NewReader(os.Stdin)

// Middle tells whoever runs the program how far it is, and waits for a line, or for the end of the input.
func Middle(of string) {
	Check(json.NewEncoder(os.Stdout).Encode(map[string]string{"middle": of}))
	_, _ = input.ReadString('\n')
}

// Total is how many records were written.
func (r *Report) Total() int {
	total := 0
	for _, n := range r.Produced {
		total += n
	}
	return total
}

// Print writes the report.
func (r *Report) Print() {
	r.Seconds = time.Since(r.started).Seconds()
	Check(json.NewEncoder(os.Stdout).Encode(r))
}

// Check ends the program with a message when there is an error.
func Check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		debug.PrintStack()
		os.Exit(1)
	}
}
