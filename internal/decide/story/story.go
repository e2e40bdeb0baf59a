// Package story reads the small language in which tests of the decide packages describe a cluster, so that people who do not
// read Go can check what is decided about it. It must never be imported by anything but tests.
//
// The first line is the cluster, every other line a machine or a member of etcd that no machine runs:
//
//	prod declared=3
//	cp-1 voter leader
//	cp-2 voter sick
//	cp-3 voter silent allowed node=down
//	w-1 worker
//	member a9 learner host=192.0.2.9
//
// A machine is an approved control plane that answers, runs, has a pinned UUID and a Node that is Ready. Its member, if it is a
// voter or a learner, has an ID made of its place in the list (a1, a2, …). Words change that.
package story

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// TakenAt is when every story happens.
var TakenAt = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// A teller builds a cluster from its lines.
type teller struct {
	f       facts.Cluster
	members []facts.Member
	views   []*facts.View
	leader  facts.MemberID
	alarms  facts.Known[[]facts.Alarm]
}

// Parse returns the cluster that a text describes.
func Parse(text string) (facts.Cluster, error) {
	t := teller{alarms: facts.Of[[]facts.Alarm](nil)}
	t.f = facts.Cluster{Name: "prod", TakenAt: TakenAt, Declared: facts.Of(1), Bootstrapped: "uuid-cp-1"}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		tell := t.machine
		switch {
		case i == 0:
			tell = t.cluster
		case words[0] == "member":
			tell = t.stray
		}
		if err := tell(words); err != nil {
			return facts.Cluster{}, fmt.Errorf("cannot read line %q: %w", line, err)
		}
	}
	t.finish()
	return t.f, nil
}

func (t *teller) cluster(words []string) error {
	t.f.Name = words[0]
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "declared":
			n := 0
			if _, err := fmt.Sscanf(value, "%d", &n); err != nil {
				t.f.Declared = facts.Unknown[int]("there is no such TalosCluster")
				continue
			}
			t.f.Declared = facts.Of(n)
		case "teardown":
			t.f.Teardown = true
		case "bootstrapped":
			t.f.Bootstrapped = value
		case "answered":
			t.f.BootstrapBoot = value
		case "alarms":
			t.alarms = alarms(value)
		default:
			return fmt.Errorf("a cluster has no %q", w)
		}
	}
	return nil
}

func alarms(value string) facts.Known[[]facts.Alarm] {
	if value == "?" {
		return facts.Unknown[[]facts.Alarm]("no member of etcd told its alarms")
	}
	name, id, _ := strings.Cut(value, ":")
	return facts.Of([]facts.Alarm{{Name: name, Member: member(id)}})
}

func (t *teller) stray(words []string) error {
	m := facts.Member{ID: member(words[1])}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "learner":
			m.Learner = true
		case "name":
			m.Name = value
		case "host":
			m.PeerHosts = []string{value}
		default:
			return fmt.Errorf("a member has no %q", w)
		}
	}
	t.members = append(t.members, m)
	return nil
}

// finish gives every member that answers the list of all, and the leader that they follow, unless told otherwise.
func (t *teller) finish() {
	slices.SortFunc(t.members, func(a, b facts.Member) int { return strings.Compare(hex(a.ID), hex(b.ID)) })
	for _, v := range t.views {
		if v == nil {
			continue
		}
		if !v.Members.IsKnown() && v.Members.Why() != mute {
			v.Members = facts.Of(t.members)
		}
		if facts.Is(v.Healthy, true) && v.Leader == 0 {
			v.Leader = t.leader
		}
		t.f.Etcd.Views = append(t.f.Etcd.Views, *v)
	}
	t.f.Etcd.Alarms = t.alarms
}

func member(hex string) facts.MemberID {
	id := facts.MemberID(0)
	_, _ = fmt.Sscanf(hex, "%x", &id) // No ID is zero.
	return id
}

func hex(id facts.MemberID) string { return fmt.Sprintf("%016x", uint64(id)) }
