package matrix

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Session and Heartbeat are those of every member of a group of mixed languages.
const (
	Session   = 20 * time.Second
	Heartbeat = 500 * time.Millisecond
)

// Member is what a program does when its first argument is "member": it prints {"held": [partition, ...]} at each change
// of its assignment and {"partition": n, "offset": n} for each record once that is committed.
type Member struct {
	Bootstrap, Topic, Group, Strategy string
	// Stop is closed by SIGTERM: the member leaves the group.
	Stop chan struct{}

	lock sync.Mutex
	held map[int32]bool
}

// NewMember is nil where the program is to do its round instead.
func NewMember() *Member {
	if len(os.Args) < 2 || os.Args[1] != "member" {
		return nil
	}
	if len(os.Args) != 6 {
		Check(fmt.Errorf("usage: %s member BOOTSTRAP TOPIC GROUP STRATEGY", os.Args[0]))
	}
	m := &Member{
		Bootstrap: os.Args[2], Topic: os.Args[3], Group: os.Args[4], Strategy: os.Args[5],
		Stop: make(chan struct{}), held: map[int32]bool{},
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() { <-signals; close(m.Stop) }()
	return m
}

func (m *Member) say(event any) { Check(json.NewEncoder(os.Stdout).Encode(event)) }

// Came and Went tell which partitions were assigned and taken away.
func (m *Member) Came(partitions []int32) { m.change(partitions, true) }

// Went is the other direction.
func (m *Member) Went(partitions []int32) { m.change(partitions, false) }

func (m *Member) change(partitions []int32, come bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partition := range partitions {
		if come {
			m.held[partition] = true
		} else {
			delete(m.held, partition)
		}
	}
	held := []int32{}
	for partition := range m.held {
		held = append(held, partition)
	}
	slices.Sort(held)
	m.say(map[string]any{"held": held})
}

// Read tells of a record that was read and committed.
func (m *Member) Read(partition int32, offset int64) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.say(map[string]any{"partition": partition, "offset": offset})
}
