package taloscluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// A mishap is what happens to one call of Bootstrap, or to what is written down of its answer.
type mishap int

const (
	// unanswered: the machine does as it is told, and its answer is lost.
	unanswered mishap = 1 + iota
	// forbidden: the API server does not allow to write the answer down.
	forbidden
	// unwritten: the patch is lost on its way to the API server.
	unwritten
	// unconfirmed: the answer is written down, and nobody tells the provider.
	unconfirmed
)

// befalling makes the i-th call of Bootstrap meet the i-th mishap, and all others none. It returns what to call before each pass,
// and how often a machine was written down.
func (w *world) befalling(mishaps []mishap) (before func(), recorded *int) {
	of := func(call int) mishap {
		if call < 0 || call >= len(mishaps) {
			return 0
		}
		return mishaps[call]
	}
	recorded = new(int)
	w.api.patch = func(text string, do func() error) error {
		if strings.Contains(text, v1alpha1.AnnotationBootstrapped) {
			*recorded++
		}
		if !strings.Contains(text, v1alpha1.AnnotationBootstrapBoot) {
			return do()
		}
		switch of(w.allSends() - 1) {
		case forbidden:
			return kerrors.NewForbidden(schema.GroupResource{Resource: "talosclusters"}, testCluster, errors.New("no such annotation is allowed"))
		case unwritten:
			return kerrors.NewTimeoutError("the API server did not answer", 1)
		case unconfirmed:
			return errors.Join(do(), kerrors.NewTimeoutError("the API server did not answer", 1))
		default:
			return do()
		}
	}
	return func() { w.answerless = of(w.allSends()) == unanswered }, recorded
}

// A birth is a bootstrap with mishaps, and how often it takes to send Bootstrap until an answer is written down.
type birth struct {
	reason  string
	mishaps []mishap
	sends   int
	// told is true if Synced says that the answer was not written down. A conflict that follows from it is passed over in silence.
	told bool
}

// births are the mishaps that were thought of.
var births = map[string]birth{
	"Forbidden": {
		reason:  "One answer that could not be written down is one call more.",
		mishaps: []mishap{forbidden}, sends: 2, told: true,
	},
	"Unwritten": {
		reason:  "A patch that was lost is like one that was refused.",
		mishaps: []mishap{unwritten}, sends: 2, told: true,
	},
	"Unconfirmed": {
		reason:  "What is written down counts, whether or not the provider was told that it is.",
		mishaps: []mishap{unconfirmed}, sends: 1,
	},
	"UnansweredThenForbidden": {
		reason:  "An answer that was lost is none to write down. The next one is refused, and the third is written down.",
		mishaps: []mishap{unanswered, forbidden}, sends: 3, told: true,
	},
	"UnansweredThenUnwritten": {
		reason:  "Nothing is known of either call, and the third one is written down.",
		mishaps: []mishap{unanswered, unwritten}, sends: 3, told: true,
	},
	"UnwrittenThenUnanswered": {
		reason:  "Nothing is known of either call, and the third one is written down.",
		mishaps: []mishap{unwritten, unanswered}, sends: 3, told: true,
	},
	"UnansweredThenUnconfirmed": {
		reason:  "The second answer is written down.",
		mishaps: []mishap{unanswered, unconfirmed}, sends: 2,
	},
}

// TestBootstrapAnswerNotWrittenDown: whatever becomes of the answer of a machine or of what is written down of it, the same machine
// is asked once more for each call that nobody knows of, and no other one. One etcd comes of it, that of one record.
func TestBootstrapAnswerNotWrittenDown(t *testing.T) {
	for name, b := range births {
		t.Run(name, func(t *testing.T) { b.run(t, false) })
		t.Run(name+"Restarted", func(t *testing.T) { b.run(t, true) })
	}
}

// run lets etcd prepare, the machine boot, and etcd come up. If the provider is restarted, each pass is that of a new process.
func (b birth) run(t *testing.T, restarted bool) {
	w := startedWorld(t)
	w.slow = true
	before, recorded := w.befalling(b.mishaps)
	r := w.reconciler()
	unsynced := ""
	passes := func(n, sends int, boot string) {
		t.Helper()
		for range n {
			if restarted {
				r = w.reconciler()
			}
			before()
			if _, err := w.pass(r); err != nil {
				t.Fatalf("\n%s\nReconcile(...): %v", b.reason, err)
			}
			if synced := w.cluster(context.Background()).GetCondition(xpv2.TypeSynced); synced.Status != corev1.ConditionTrue {
				unsynced += synced.Message
			}
		}
		a := w.cluster(context.Background()).GetAnnotations()
		if w.sends["cp-1"] != sends || w.allSends() != sends {
			t.Errorf("\n%s\nBootstrap was sent to %v, want %d times to cp-1", b.reason, w.sends, sends)
		}
		if *recorded != 1 || a[v1alpha1.AnnotationBootstrapped] != w.machines[0].uuid || a[v1alpha1.AnnotationBootstrapBoot] != boot {
			t.Errorf("\n%s\n%d records, the last of machine %q, and boot %q; want one, of cp-1, and boot %q",
				b.reason, *recorded, a[v1alpha1.AnnotationBootstrapped], a[v1alpha1.AnnotationBootstrapBoot], boot)
		}
	}

	passes(8, b.sends, "boot-0-of-cp-1")
	if told := strings.Contains(unsynced, "cannot write down in which boot Bootstrap was answered"); told != b.told || (unsynced != "") != b.told {
		t.Errorf("\n%s\nSynced: %q", b.reason, unsynced)
	}
	w.machines[0].boots++
	passes(3, b.sends+1, "boot-1-of-cp-1")
	w.machines[0].etcd = 0xe7cd
	w.join()
	passes(3, b.sends+1, "boot-1-of-cp-1")
	if ready := w.cluster(context.Background()).GetCondition(xpv2.TypeReady); ready.Status != corev1.ConditionTrue {
		t.Errorf("\n%s\nReady: %s %q", b.reason, ready.Reason, ready.Message)
	}
}

// TestBootstrapAnswerOverWhatTheCacheShows: the boot of an answer is written down although a cache that lags behind shows it as
// written down already, from before it was taken off with the record of the machine.
func TestBootstrapAnswerOverWhatTheCacheShows(t *testing.T) {
	w := startedWorld(t, annotated(v1alpha1.AnnotationBootstrapBoot, "boot-0-of-cp-1"))
	w.slow, w.behind = true, true
	w.crash = func(_ int, after bool) error {
		if after && w.cluster(context.Background()).GetAnnotations()[v1alpha1.AnnotationBootstrapped] != "" {
			return errCrash // The record is the last that was written: the next cache does not show it.
		}
		return nil
	}
	for range 5 {
		_, _ = w.pass(w.reconciler()) // What failed is tried again.
		if w.allSends() > 0 || w.dead {
			w.crash = nil
		}
	}
	if w.sends["cp-1"] != 1 || w.allSends() != 1 {
		t.Errorf("Bootstrap was sent to %v, want once to cp-1", w.sends)
	}
	if got := w.cluster(context.Background()).GetAnnotations()[v1alpha1.AnnotationBootstrapBoot]; got != "boot-0-of-cp-1" {
		t.Errorf("boot %q is written down", got)
	}
}
