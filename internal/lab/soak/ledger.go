package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// Where kube-apiserver keeps the lock and the machines.
const (
	lockSuffix  = "-disruption"
	leaseName   = clusterName + lockSuffix
	leasesKey   = "/registry/leases/" + namespace + "/"
	machinesKey = "/registry/ichor.maesh.dev/talosmachines/" + namespace + "/"
)

// isLock tells whether a key is that of the lock of the one cluster that there is, whatever that is called.
func isLock(key string) bool {
	return strings.HasPrefix(key, leasesKey) && strings.HasSuffix(key, lockSuffix)
}

// A ledger follows every write of the lock and of machines in the etcd of the management cluster. There nothing is missed and
// nothing comes late, also not while the API server is stopped.
type ledger struct {
	client *clientv3.Client
	cancel context.CancelFunc
	done   chan struct{}
	err    error // why it ended by itself; to be read after done
}

// A page is one write. An object that is gone is nil in both.
type page struct {
	at      time.Time
	key     string
	lease   *coordinationv1.Lease
	machine *v1alpha1.TalosMachine
}

// follow tells what is there and then what is written, in order.
func follow(ctx context.Context, endpoint string, tell func(page)) (*ledger, error) {
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: lookTimeout, Context: following, Logger: zap.NewNop()})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("cannot make a client of the management cluster's etcd: %w", err)
	}
	l := &ledger{client: c, cancel: cancel, done: make(chan struct{})}
	after := int64(0)
	for _, key := range []string{leasesKey, machinesKey} {
		is, err := c.Get(ctx, key, clientv3.WithPrefix())
		if err != nil {
			cancel()
			return nil, errors.Join(fmt.Errorf("cannot read the management cluster's etcd: %w", err), ignoreCanceled(c.Close()))
		}
		if after == 0 {
			after = is.Header.Revision // What is written between the two is told twice, and is the same.
		}
		for _, kv := range is.Kvs {
			if err := turn(string(kv.Key), kv.Value, tell); err != nil {
				cancel()
				return nil, errors.Join(err, ignoreCanceled(c.Close()))
			}
		}
	}
	go l.run(following, after+1, tell)
	return l, nil
}

func (l *ledger) run(ctx context.Context, from int64, tell func(page)) {
	defer close(l.done)
	for r := range l.client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := r.Err(); err != nil {
			l.err = err
			return
		}
		for _, e := range r.Events {
			if l.err = turn(string(e.Kv.Key), e.Kv.Value, tell); l.err != nil {
				return
			}
		}
	}
	if ctx.Err() == nil {
		l.err = errors.New("the management cluster's etcd ended the watch")
	}
}

// turn reads one write.
func turn(key string, value []byte, tell func(page)) error {
	p := page{at: time.Now(), key: key}
	switch {
	case isLock(key):
		if len(value) > 0 {
			o, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
			if err != nil {
				return fmt.Errorf("cannot read a Lease: %w", err)
			}
			lease, ok := o.(*coordinationv1.Lease)
			if !ok {
				return fmt.Errorf("cannot read a Lease: it is a %T", o)
			}
			p.lease = lease
		}
	case strings.HasPrefix(key, machinesKey):
		if len(value) > 0 {
			p.machine = &v1alpha1.TalosMachine{}
			if err := json.Unmarshal(value, p.machine); err != nil {
				return fmt.Errorf("cannot read a TalosMachine: %w", err)
			}
		}
	default:
		return nil
	}
	tell(p)
	return nil
}

// holder is who a Lease says holds the lock; empty if nobody does.
func holder(l *coordinationv1.Lease) string {
	if l == nil {
		return ""
	}
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

// stop ends it.
func (l *ledger) stop() error {
	l.cancel()
	<-l.done
	return errors.Join(l.err, ignoreCanceled(l.client.Close()))
}

// ignoreCanceled takes away what a client says that was stopped.
func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
