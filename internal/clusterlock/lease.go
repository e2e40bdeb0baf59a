package clusterlock

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// What a Lease has no fields for is in its annotations.
const (
	annotationPrefix       = "clusterlock.ichor.maesh.dev/"
	annotationName         = annotationPrefix + "holder-name"
	annotationPurpose      = annotationPrefix + "purpose"
	annotationSession      = annotationPrefix + "session"
	annotationIrreversible = annotationPrefix + "irreversible"
)

// A record is what a Lease says.
type record struct {
	Info
	// free is true if no holder is recorded.
	free bool
	// session is new with every taking, so two processes with the same work do not take each other for themselves.
	session string
	// duration for which the Lease must stay unchanged before it has expired.
	duration time.Duration
}

// A sighting is when this process first saw a version of a Lease, by its own monotonic clock.
type sighting struct {
	uid     types.UID
	version string
	at      time.Time
}

// decode reads a Lease. What it does not understand makes it hold longer, never shorter.
func decode(lease *coordinationv1.Lease) record {
	a, identity := lease.GetAnnotations(), ptr.Deref(lease.Spec.HolderIdentity, "")
	r := record{free: identity == "", session: a[annotationSession]}
	kind, uid, ok := strings.Cut(identity, "/")
	if !ok {
		kind, uid = "unknown holder", identity
	}
	r.Holder = Holder{Kind: kind, Name: a[annotationName], UID: types.UID(uid), Purpose: a[annotationPurpose]}
	if r.Holder.Name == "" {
		r.Holder.Name = identity
	}
	irreversible, marked := a[annotationIrreversible]
	r.Irreversible = marked && irreversible != "false"
	if t := lease.Spec.AcquireTime; t != nil {
		r.Since = t.Time
	}
	r.duration = max(leaseDuration, time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second)
	return r
}

// encode writes who holds it into a Lease.
func encode(lease *coordinationv1.Lease, r record, labels map[string]string, now time.Time) {
	a := maps.Clone(lease.GetAnnotations())
	if a == nil {
		a = map[string]string{}
	}
	a[annotationName] = r.Holder.Name
	a[annotationPurpose] = r.Holder.Purpose
	a[annotationSession] = r.session
	delete(a, annotationIrreversible)
	if r.Irreversible {
		a[annotationIrreversible] = "true"
	}
	lease.SetAnnotations(a)
	if len(labels) > 0 {
		all := maps.Clone(lease.GetLabels())
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, labels)
		lease.SetLabels(all)
	}
	identity := r.Holder.Kind + "/" + string(r.Holder.UID)
	if before := ptr.Deref(lease.Spec.HolderIdentity, ""); before != "" && before != identity {
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	lease.Spec.HolderIdentity = ptr.To(identity)
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(leaseDuration / time.Second))
	lease.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(r.Since))
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now))
}

// read reads a Lease, or nil if there is none, and remembers when this version of it was first seen.
func (l *Locks) read(ctx context.Context, key types.NamespacedName) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	lease := &coordinationv1.Lease{}
	err := l.reader.Get(ctx, key, lease)
	if kerrors.IsNotFound(err) {
		l.forget(key)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read Lease %q: %w", key.Name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.seen[key]; s.uid != lease.GetUID() || s.version != lease.GetResourceVersion() {
		// The time is read after the answer: it may only be later than the write, never earlier.
		l.seen[key] = sighting{uid: lease.GetUID(), version: lease.GetResourceVersion(), at: l.clock.Now()}
	}
	return lease, nil
}

func (l *Locks) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, key)
}

// expired tells whether this process has seen the Lease stay unchanged for as long as it lasts.
func (l *Locks) expired(key types.NamespacedName, lease *coordinationv1.Lease, r record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[key]
	return s.uid == lease.GetUID() && s.version == lease.GetResourceVersion() && l.clock.Since(s.at) >= r.duration
}
