package soak

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
)

const (
	lookInterval = 500 * time.Millisecond
	// lookTimeout is how long one member may take to answer before it has told nothing.
	lookTimeout = 3 * time.Second
	// controlPlaneLabel is on the Nodes of control planes.
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
)

// A monitor looks at the etcd of every machine and reads the log of calls, again and again, until it is stopped.
type monitor struct {
	fleet   *lab.Fleet
	nodes   kubernetes.Interface
	members map[string]*clientv3.Client // by machine
	names   map[string]string           // of machines, by address
	tell    func(format string, args ...any)

	cancel context.CancelFunc
	done   chan struct{}

	ledger *ledger

	mu       sync.Mutex
	judge    *judge
	heard    uint64 // the number of the last call
	looks    int
	writes   int
	machines map[string]*v1alpha1.TalosMachine // as last written, by key
	removals map[string]int                    // that have ended, by how
	shown    string
}

// watch begins to look. etcd has to serve by now.
func watch(ctx context.Context, l *lab.Lab, j *judge, pki, connection *corev1.Secret, tell func(string, ...any)) (*monitor, error) {
	config, err := lab.EtcdTLS(pki.Data["secrets.yaml"])
	if err != nil {
		return nil, err
	}
	access, err := clientcmd.RESTConfigFromKubeConfig(connection.Data["kubeconfig"])
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig of the connection Secret: %w", err)
	}
	access.Timeout = lookTimeout
	nodes, err := kubernetes.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client of the cluster: %w", err)
	}
	machines, err := l.Fleet.Machines(ctx)
	if err != nil {
		return nil, err
	}
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m := &monitor{
		fleet: l.Fleet, nodes: nodes, members: map[string]*clientv3.Client{}, names: map[string]string{}, tell: tell,
		cancel: cancel, done: make(chan struct{}), judge: j, machines: map[string]*v1alpha1.TalosMachine{}, removals: map[string]int{},
	}
	for _, machine := range machines {
		m.names[machine.Address] = machine.Name
		if m.members[machine.Name], err = dial(watching, machine.Address, config); err != nil {
			cancel()
			m.close()
			return nil, err
		}
	}
	j.followed = time.Now()
	if m.ledger, err = follow(ctx, l.ManagementEtcd(), m.read); err != nil {
		cancel()
		m.close()
		return nil, err
	}
	go m.run(watching)
	return m, nil
}

func dial(ctx context.Context, address string, config *tls.Config) (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{etcdAt(address)}, TLS: config, DialTimeout: lookTimeout, Context: ctx, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client of etcd: %w", err)
	}
	return c, nil
}

func etcdAt(address string) string { return "https://" + net.JoinHostPort(address, "2379") }

func (m *monitor) run(ctx context.Context) {
	defer close(m.done)
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		m.once(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// once looks, and has it judged. What a call did shows in the look after it, so calls are heard first.
func (m *monitor) once(ctx context.Context) {
	m.mu.Lock()
	since := m.heard
	m.mu.Unlock()
	calls, err := m.fleet.RPCs(ctx, since)
	l := m.look(ctx)
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && len(calls) > 0 {
		m.heard = calls[len(calls)-1].Seq
		m.judge.hear(calls)
		m.show(calls)
	}
	m.looks++
	voters, up := m.judge.see(l)
	if is := fmt.Sprintf("etcd: %d of %d voters up", up, voters); is != m.shown {
		m.shown = is
		m.tell("        %s", is)
	}
}

// read a page of the ledger.
func (m *monitor) read(p page) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	if isLock(p.key) {
		m.judge.held(p.at, holder(p.lease))
		return
	}
	last := m.machines[p.key]
	switch {
	case p.machine != nil:
		m.machines[p.key] = p.machine
		m.judge.owners[machineHolder+string(p.machine.GetUID())] = m.names[p.machine.Spec.ForProvider.Address]
	case last != nil:
		delete(m.machines, p.key)
		how := endOf(last)
		m.removals[how]++
		m.tell("        the removal of %s has ended: %s", last.GetName(), how)
		if how == endedDone {
			m.judge.endings = append(m.judge.endings, ending{at: p.at, machine: m.names[last.Spec.ForProvider.Address], object: last.GetName()})
		}
	}
}

// tally counts what was seen. Removals that have not ended count by what they wait for.
func (m *monitor) tally(t *Tally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.Looks, t.Calls, t.Writes = m.looks, m.judge.judged, m.writes
	maps.Copy(t.Removals, m.removals)
	for _, is := range m.machines {
		if leaving(is) {
			t.Removals["that wait: "+string(is.GetCondition(v1alpha1.TypeRemoval).Reason)]++
		}
	}
}

// job tells which machine holds the lock now, and since when it does.
func (m *monitor) job() (machine string, since time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.judge.inFlight(time.Now())
	return m.judge.owners[t.holder], time.Since(t.from), ok
}

// struck counts faults, and those that were there while a job was in flight.
func (m *monitor) struck(t *Tally, all []strike) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range all {
		t.Thrown[s.what]++
		if m.judge.struck(s.from, s.to) {
			t.Struck[s.what]++
		}
	}
	t.Latest = m.judge.latest
	for _, held := range m.judge.tenures {
		if held.machine() {
			t.Jobs++
		}
	}
}

// show the calls that disturb.
func (m *monitor) show(calls []lab.RPC) {
	for _, c := range calls {
		switch c.Method {
		case callBootstrap, callLeave, callRemove, callReset, callReboot:
			if len(c.Forwarded) == 0 {
				m.tell("        %s gets %s %s", c.Machine, short(c.Method), c.Detail)
			}
		}
	}
}

// look asks every machine at once.
func (m *monitor) look(ctx context.Context) look {
	l := look{begun: time.Now(), stages: m.stages(ctx)}
	var mu sync.Mutex
	var all sync.WaitGroup
	for machine, c := range m.members {
		all.Go(func() {
			v := m.ask(ctx, machine, c)
			mu.Lock()
			defer mu.Unlock()
			l.views = append(l.views, v)
		})
	}
	l.cordoned = m.cordons(ctx)
	all.Wait()
	slices.SortFunc(l.views, func(a, b view) int { return strings.Compare(a.machine, b.machine) })
	l.ended = time.Now()
	return l
}

// ask one machine. Where nothing listens a client would try again and again, so that is found out before.
func (m *monitor) ask(ctx context.Context, machine string, c *clientv3.Client) view {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	v := view{machine: machine}
	endpoint := c.Endpoints()[0]
	at, err := url.Parse(endpoint)
	if err != nil {
		return v
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
	if err != nil {
		v.known = ctx.Err() == nil
		return v
	}
	_ = conn.Close() // It was only to see who listens.
	status, err := c.Status(ctx, endpoint)
	if err != nil {
		// Its own words say that it is down; silence says nothing.
		v.known = ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded)
		return v
	}
	v.known, v.up, v.index = true, status.Leader != 0 && !slices.ContainsFunc(status.Errors, fatal), status.RaftIndex
	list, err := c.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return v
	}
	for _, is := range list.Members {
		v.members = append(v.members, member{id: is.ID, machine: m.at(is.PeerURLs), learner: is.IsLearner})
	}
	return v
}

// fatal tells whether a member that says this cannot take part.
func fatal(text string) bool { return strings.Contains(text, "no leader") }

// at is the machine that has one of these addresses.
func (m *monitor) at(urls []string) string {
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil && m.names[u.Hostname()] != "" {
			return m.names[u.Hostname()]
		}
	}
	return strings.Join(urls, ",")
}

// cordons are the control planes whose Nodes take no pods. If Kubernetes does not tell, nothing is known of it.
func (m *monitor) cordons(ctx context.Context) []string {
	list, err := m.nodes.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: controlPlaneLabel})
	if err != nil {
		return nil
	}
	var out []string
	for i := range list.Items {
		if list.Items[i].Spec.Unschedulable {
			out = append(out, list.Items[i].Name)
		}
	}
	return out
}

// stages are what machines show on their consoles. If nobody tells, nothing is known of it.
func (m *monitor) stages(ctx context.Context) map[string]string {
	all, err := m.fleet.Machines(ctx)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for _, is := range all {
		if is.PoweredOn {
			out[is.Name] = is.Stage
		}
	}
	return out
}

// note tells the judge what was asked for or broken on purpose.
func (m *monitor) note(change func(*judge)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m.judge)
}

// broken are the rules that were broken so far.
func (m *monitor) broken() []Violation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.judge.found)
}

// stop ends the watch. An error means that something may have been missed.
func (m *monitor) stop() error {
	m.cancel()
	<-m.done
	m.close()
	return m.ledger.stop()
}

func (m *monitor) close() {
	for _, c := range m.members {
		if c != nil {
			_ = c.Close() // Its context has ended, which is all that it could say.
		}
	}
}
