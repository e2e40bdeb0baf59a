package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/maesh/provider-ichor/internal/lab"
)

const (
	// lookInterval is how often etcd is looked at: a machine that reboots is down for seconds.
	lookInterval = 250 * time.Millisecond
	// listTimeout is how long etcd may take to tell its members: less than a quorum that is lost for a moment.
	listTimeout = time.Second
	// lookTimeout is how long a member may take to answer. All members share two cores with everything else.
	lookTimeout = 5 * time.Second
	// maxBlind is how long etcd may tell nothing, as in an election, before that counts as a quorum lost.
	maxBlind = 15 * time.Second
)

// An etcdWatch looks at etcd through a client of its own, again and again, until it is stopped. It knows the certificates
// and the addresses of etcd, and nothing of the product.
type etcdWatch struct {
	client *clientv3.Client
	// members are those of the last list; run's own.
	members []*etcdserverpb.Member

	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	tally tally
}

// watchEtcd begins to watch. The members have to serve by now.
func (d *Demo) watchEtcd(ctx context.Context) error {
	all, err := d.lab.Fleet.Machines(ctx)
	if err != nil {
		return err
	}
	var endpoints []string
	for _, m := range all {
		endpoints = append(endpoints, "https://"+m.Address+":2379")
	}
	s := &corev1.Secret{}
	if err := d.object(ctx, pkiSecret, s); err != nil {
		return fmt.Errorf("cannot get the PKI Secret: %w", err)
	}
	config, err := lab.EtcdTLS(s.Data["secrets.yaml"])
	if err != nil {
		return err
	}
	w := &etcdWatch{done: make(chan struct{})}
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	w.client, err = clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: config, DialTimeout: lookTimeout, Context: watching, Logger: zap.NewNop(),
	})
	if err != nil {
		cancel()
		return fmt.Errorf("cannot make a client of etcd: %w", err)
	}
	d.etcd = w
	go w.run(watching)
	return nil
}

func (w *etcdWatch) run(ctx context.Context) {
	defer close(w.done)
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		voters, up, err := w.look(ctx)
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		w.tally.add(time.Now(), voters, up, err)
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look counts the voters, and those of them that are up. The list is a linearizable read, which comes from a quorum: without
// one it does not come, and those that were on the last one are counted. If enough of them are up for a quorum nonetheless,
// as in an election, that is an error: it proves nothing.
func (w *etcdWatch) look(ctx context.Context) (voters, up int, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	unlisted := w.list(ctx)
	if len(w.members) == 0 {
		return 0, 0, unlisted
	}
	for _, m := range w.members {
		if m.IsLearner {
			continue
		}
		voters++
		if len(m.ClientURLs) == 0 {
			continue // Never started.
		}
		serves, err := w.serves(ctx, m.ClientURLs[0])
		if err != nil {
			return 0, 0, fmt.Errorf("%s is slow to answer: %w", m.Name, err)
		}
		if serves {
			up++
		}
	}
	if unlisted != nil && up >= quorumOf(voters) {
		return 0, 0, unlisted
	}
	return voters, up, nil
}

// list reads the members of etcd, or leaves them as they were.
func (w *etcdWatch) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := w.client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("etcd does not tell its members: %w", err)
	}
	w.members = list.Members
	return nil
}

func quorumOf(voters int) int { return voters/2 + 1 }

// serves tells whether a member is up. One that is down refuses connections: the client would try again and again, so that
// is found out before. One that is only slow says nothing of itself, which is an error.
func (w *etcdWatch) serves(ctx context.Context, member string) (bool, error) {
	at, err := url.Parse(member)
	if err != nil {
		return false, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
	if err == nil {
		err = conn.Close()
	}
	if err == nil {
		_, err = w.client.Status(ctx, member)
	}
	if ctx.Err() != nil {
		return false, err
	}
	return err == nil, nil
}

// stop ends the watch. Stopping twice does no harm.
func (w *etcdWatch) stop() {
	w.cancel()
	<-w.done
	_ = w.client.Close() // Its context has ended, which is all that it could say.
}

// A tally is what an etcdWatch has seen.
type tally struct {
	looks int
	// story has each count of voters up and of voters that differed from the one before, such as 2/3.
	story []string
	// lost says when there was no quorum; nil if there always was.
	lost error

	blindSince time.Time
	blind      error
}

// add one look. A look that saw nothing proves nothing, but too many of them in a row do.
func (t *tally) add(now time.Time, voters, up int, err error) {
	if err != nil {
		if t.blind == nil {
			t.blindSince = now
		}
		t.blind = err
		if now.Sub(t.blindSince) > maxBlind {
			t.lose(fmt.Errorf("etcd told nothing for more than %s: %w", maxBlind, err))
		}
		return
	}
	t.blind = nil
	t.looks++
	if is := fmt.Sprintf("%d/%d", up, voters); len(t.story) == 0 || t.story[len(t.story)-1] != is {
		t.story = append(t.story, is)
	}
	if quorum := quorumOf(voters); up < quorum {
		t.lose(fmt.Errorf("%d of %d voters were up, and a quorum needs %d (in look %d)", up, voters, quorum, t.looks))
	}
}

func (t *tally) lose(err error) {
	if t.lost == nil {
		t.lost = err
	}
}

// verdict is an error unless there was a quorum in every look, the last one included.
func (t *tally) verdict() error {
	switch {
	case t.lost != nil:
		return t.lost
	case t.looks == 0:
		return errors.New("etcd was never looked at")
	case t.blind != nil:
		return fmt.Errorf("the last look saw nothing: %w", t.blind)
	}
	return nil
}

// quorumHeld ends the watch: what follows takes the cluster down on purpose.
func (d *Demo) quorumHeld(context.Context) error {
	d.etcd.stop()
	t := d.etcd.tally
	d.sayf("        looked at etcd %d times; voters up / voters: %s\n", t.looks, strings.Join(t.story, " "))
	return t.verdict()
}
