package accidents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/internal/lab"
)

// patience is longer than any busy machine should need for one thing.
const patience = 3 * time.Minute

// await waits until something is no error any more.
func (w *world) await(what string, ask func() error) {
	w.t.Helper()
	w.must(lab.Await(w.ctx, what, patience, func(context.Context) error { return ask() }))
}

// find reads an object; false if there is none.
func (w *world) find(o client.Object, namespace, name string) bool {
	w.t.Helper()
	err := w.Get(w.ctx, types.NamespacedName{Namespace: namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return err == nil
}

// awaitGone waits until there is no such object any more.
func (w *world) awaitGone(o client.Object, namespace, name string) {
	w.t.Helper()
	w.await(fmt.Sprintf("%T %s is gone", o, name), func() error {
		if w.find(o, namespace, name) {
			return fmt.Errorf("it is there, with finalizers %q: %s", o.GetFinalizers(), conditionsOf(o))
		}
		return nil
	})
}

// awaitReason waits until a condition has a reason.
func (w *world) awaitReason(o resource.Conditioned, namespace, name string, t xpv2.ConditionType, r xpv2.ConditionReason) {
	w.t.Helper()
	w.await(fmt.Sprintf("%s of %s is %s", t, name, r), func() error {
		if !w.find(o.(client.Object), namespace, name) {
			return errors.New("it does not exist")
		}
		if o.GetCondition(t).Reason != r {
			return errors.New(conditionsOf(o.(client.Object)))
		}
		return nil
	})
}

func conditionsOf(o client.Object) string {
	c, ok := o.(resource.Conditioned)
	if !ok {
		return ""
	}
	var out []string
	for _, t := range []xpv2.ConditionType{"Ready", "Synced", "Reachable", "Removal"} {
		is := c.GetCondition(t)
		out = append(out, fmt.Sprintf("%s=%s %s %s", t, is.Status, is.Reason, is.Message))
	}
	return strings.Join(out, "; ")
}

// change an object, again if somebody else changed it meanwhile.
func (w *world) change(o client.Object, namespace, name string, f func()) {
	w.t.Helper()
	w.await("changing "+name, func() error {
		if !w.find(o, namespace, name) {
			w.t.Fatalf("%T %q does not exist", o, name)
		}
		f()
		err := w.Update(w.ctx, o)
		if err != nil && !kerrors.IsConflict(err) {
			w.t.Fatal(err)
		}
		return err
	})
}

// An observer remembers a moment, to tell later what was sent to machines since then.
type observer struct {
	w     *world
	since uint64
}

func (w *world) watch() observer {
	all := w.fleet.Log().Snapshot()
	o := observer{w: w}
	if len(all) > 0 {
		o.since = all[len(all)-1].Seq
	}
	return o
}

// sent are the calls that may change a machine, as "machine Method", in order.
func (o observer) sent() []string {
	sent := []string{}
	for _, r := range o.w.fleet.Log().Since(o.since) {
		if r.Mutating {
			sent = append(sent, r.Machine+" "+filepath.Base(r.Method))
		}
	}
	return sent
}

// expect exactly these calls.
func (o observer) expect(want ...string) {
	o.w.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), o.sent()); diff != "" {
		o.w.t.Errorf("what was sent to machines: -want, +got:\n%s", diff)
	}
}

// nothing expects that nothing was sent, also while the provider went on: it is waited until it has looked at a machine
// a few times more.
func (o observer) nothing(machine string) {
	o.w.t.Helper()
	o.nothingBut(machine)
}

// nothingBut expects exactly these calls, also while the provider went on.
func (o observer) nothingBut(machine string, calls ...string) {
	o.w.t.Helper()
	now := o.w.watch()
	o.w.await("the provider looks at "+machine, func() error {
		looks := 0
		for _, r := range o.w.fleet.Log().Since(now.since) {
			if r.Machine == machine && strings.HasSuffix(r.Method, "/Version") {
				looks++
			}
		}
		if looks < 3 {
			return fmt.Errorf("it did %d times", looks)
		}
		return nil
	})
	o.expect(calls...)
}

// members are the voters of etcd, as a member of it says that is asked past everything else.
func (w *world) members(machine string) []string {
	w.t.Helper()
	c, err := w.fleet.Etcd(machine)
	w.must(err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	list, err := c.MemberList(ctx) // Linearizable: without quorum there is no answer.
	w.must(err)
	var ids []string
	for _, m := range list.Members {
		if !m.IsLearner {
			ids = append(ids, fmt.Sprintf("%x", m.ID))
		}
	}
	slices.Sort(ids)
	return ids
}

// A transcript is all that people are told during an accident.
type transcript struct {
	w    *world
	name string
	text strings.Builder
}

func (w *world) transcript(name string) *transcript { return &transcript{w: w, name: name} }

// changing is what differs from run to run.
var changing = map[string]*regexp.Regexp{
	"<time>":  regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`),
	"<port>":  regexp.MustCompile(`127\.0\.0\.1:\d+`),
	"<id>":    regexp.MustCompile(`[\w-]{43}=`),
	"<since>": regexp.MustCompile(`for \d+[ms][\w.]*`),
}

// says notes what somebody was told, and when.
func (t *transcript) says(when, what string) {
	if secret := t.w.secrets.Find(what); secret != "" {
		t.w.t.Errorf("%s: what is said has %s", when, secret)
	}
	what = strings.TrimSpace(what)
	for by, re := range changing {
		what = re.ReplaceAllString(what, by)
	}
	fmt.Fprintf(&t.text, "# %s\n%s\n\n", when, what)
}

// condition notes what a condition says.
func (t *transcript) condition(when string, o resource.Conditioned, c xpv2.ConditionType) {
	is := o.GetCondition(c)
	t.says(when, fmt.Sprintf("%s=%s %s: %s", c, is.Status, is.Reason, is.Message))
}

// check compares with what was reviewed.
func (t *transcript) check(tt *testing.T) {
	tt.Helper()
	path := filepath.Join("testdata", t.name+".txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(t.text.String()), 0o644); err != nil { //nolint:gosec // A text for everybody.
			tt.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tt.Fatal(err)
	}
	if diff := cmp.Diff(string(want), t.text.String()); diff != "" {
		tt.Errorf("what people are told: -want, +got:\n%s", diff)
	}
}
