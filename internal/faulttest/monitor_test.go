package faulttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A monitor asks etcd itself, all the time and past the Talos API, who its members are. It knows nothing of the product.
type monitor struct {
	mu      sync.Mutex
	answers []answer
}

// An answer is a list of members that was true at some moment from asked to got.
type answer struct {
	asked, got time.Time
	members    []*etcdserverpb.Member
}

// watchEtcd begins the monitor, and waits for its first answer. It asks cp-1, which no part removes.
func (w *world) watchEtcd() {
	w.t.Helper()
	cli, err := w.fleet.Etcd("cp-1")
	must(w.t, err)
	w.etcdSeen = &monitor{}
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	asking.Go(func() { w.etcdSeen.ask(ctx, cli) })
	w.t.Cleanup(func() {
		cancel()
		asking.Wait()
		_ = cli.Close() // it only reads
	})
	w.await("an answer of etcd", func() bool { return len(w.etcdSeen.all()) > 0 })
}

func (m *monitor) ask(ctx context.Context, cli *clientv3.Client) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		a := answer{asked: time.Now()}
		once, cancel := context.WithTimeout(ctx, requestTimeout)
		list, err := cli.MemberList(once) // linearizable: none while etcd has no quorum
		cancel()
		if err == nil {
			a.got, a.members = time.Now(), list.Members
			m.mu.Lock()
			m.answers = append(m.answers, a)
			m.mu.Unlock()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (m *monitor) all() []answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.answers)
}

// around returns the last answer that came before a moment, and the first that was asked for after it.
func around(answers []answer, t time.Time) (before, after answer) {
	for _, a := range answers {
		if a.got.Before(t) {
			before = a
		}
		if a.asked.After(t) {
			return before, a
		}
	}
	return before, after
}

func (a answer) voters() int {
	n := 0
	for _, m := range a.members {
		if !m.IsLearner {
			n++
		}
	}
	return n
}

// member returns the ID of the member of that name, or zero.
func (a answer) member(name string) uint64 {
	for _, m := range a.members {
		if m.Name == name {
			return m.ID
		}
	}
	return 0
}

// lost tells of the first moment at which etcd had fewer voters than before and than are declared.
func lost(answers []answer) string {
	for i, a := range answers[min(1, len(answers)):] {
		if was := answers[i].voters(); a.voters() < min(was, declared) {
			return fmt.Sprintf("etcd went from %d to %d voters, and %d are declared", was, a.voters(), declared)
		}
	}
	return ""
}

// wasMember tells whether etcd listed the member of a machine at a moment. IDs are never used twice: one that is listed before
// and after was listed at that moment.
func wasMember(answers []answer, machine string, at time.Time) bool {
	before, after := around(answers, at)
	id := before.member(hostname(machine))
	return id != 0 && id == after.member(hostname(machine))
}

// promisesWereKept holds all that was seen so far against the invariants that can be told from outside.
func (w *world) promisesWereKept() {
	w.t.Helper()
	w.eventually("etcd serves", func(ctx context.Context) error {
		cli, err := w.fleet.Etcd("cp-1")
		if err != nil {
			return err
		}
		defer func() { _ = cli.Close() }() // it only reads
		_, err = cli.Get(ctx, "health")
		return err
	})
	answers := w.etcdSeen.all()
	if violation := lost(answers); violation != "" {
		w.t.Errorf("I1: %s", violation)
	}
	var bootstraps []string
	for _, r := range w.fleet.Log().Snapshot() {
		if len(r.Forwarded) > 0 {
			w.t.Errorf("%s was sent to %s to be passed on to %q: who answers then is anybody's guess", r.Method, r.Machine, r.Forwarded)
		}
		switch r.Method[strings.LastIndexByte(r.Method, '/')+1:] {
		case "Bootstrap":
			bootstraps = append(bootstraps, r.Machine)
		case "Reset":
			if wasMember(answers, r.Machine, r.Time) {
				w.t.Errorf("I2: %s was reset while etcd listed its member", r.Machine)
			}
		}
	}
	if to := slices.Compact(bootstraps); len(to) != 1 { // How often it was sent to that one is for birth to say.
		w.t.Errorf("I9: Bootstrap was sent to %q", to)
	}
}

// TestMonitor shows that what is asked of the answers would be found.
func TestMonitor(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(tenths int) time.Time { return start.Add(time.Duration(tenths) * 100 * time.Millisecond) }
	voter := func(name string, id uint64) *etcdserverpb.Member {
		return &etcdserverpb.Member{ID: id, Name: hostname(name)}
	}
	three := []*etcdserverpb.Member{voter("cp-1", 1), voter("cp-2", 2), voter("cp-3", 3)}
	four, anew := append(slices.Clone(three), voter("cp-4", 4)), append(slices.Clone(three), voter("cp-4", 5))
	learner := append(slices.Clone(three[:2]), &etcdserverpb.Member{ID: 3, Name: hostname("cp-3"), IsLearner: true})
	cases := map[string]struct {
		reason    string
		lists     [][]*etcdserverpb.Member
		wantLost  bool
		wasMember bool // cp-4, between the first and the second answer
	}{
		"Stays":      {reason: "A member before and after was one in between.", lists: [][]*etcdserverpb.Member{four, four}, wasMember: true},
		"Left":       {reason: "Nobody can tell whether it left before or after, so nobody is accused.", lists: [][]*etcdserverpb.Member{four, three}},
		"Gone":       {reason: "It had left before.", lists: [][]*etcdserverpb.Member{three, three}},
		"CameAnew":   {reason: "It has come back as another member.", lists: [][]*etcdserverpb.Member{four, anew}},
		"TooFew":     {reason: "Three are declared, and two are left.", lists: [][]*etcdserverpb.Member{three, three[:2]}, wantLost: true},
		"Learner":    {reason: "A learner has no vote.", lists: [][]*etcdserverpb.Member{three, learner}, wantLost: true},
		"StillGrows": {reason: "A cluster that grows loses nobody.", lists: [][]*etcdserverpb.Member{three[:1], learner, three}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var answers []answer
			for i, list := range tc.lists {
				answers = append(answers, answer{asked: at(10 * i), got: at(10*i + 1), members: list})
			}
			if got := lost(answers); (got != "") != tc.wantLost {
				t.Errorf("\n%s\nlost says %q", tc.reason, got)
			}
			if got := wasMember(answers, "cp-4", at(5)); got != tc.wasMember {
				t.Errorf("\n%s\nwasMember is %t", tc.reason, got)
			}
		})
	}
}
