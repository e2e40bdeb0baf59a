package controller

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/connect"
	"github.com/maesh/provider-ichor/internal/machineconfig"
)

const (
	worker     = "worker-1"
	workerUUID = "00000000-0000-4000-8000-000000000009"

	// changes is how often something is changed that is nobody's business, and peace how many passes there may be all the
	// same, for other reasons. Changes that come faster than a pass ends share one, so there is a pause between them.
	changes, peace = 40, 8
	pause          = 40 * time.Millisecond
)

// A diary is a logger that counts the passes over each object, and those of them that the limit of all passes was asked
// about.
type diary struct {
	logging.Logger
	*pages

	controller string
	request    reconcile.Request
}

type pages struct {
	mu              sync.Mutex
	passes, limited map[string]int
}

func newDiary() *diary {
	return &diary{Logger: logging.NewNopLogger(), pages: &pages{passes: map[string]int{}, limited: map[string]int{}}}
}

// WithValues returns a diary that knows whose pass it is.
func (d *diary) WithValues(kv ...any) logging.Logger {
	next := *d
	for i := 0; i+1 < len(kv); i += 2 {
		switch v := kv[i+1].(type) {
		case string:
			if kv[i] == "controller" {
				next.controller = v
			}
		case reconcile.Request:
			next.request = v
		}
	}
	return &next
}

// Debug counts what begins a pass.
func (d *diary) Debug(msg string, _ ...any) {
	if msg != "Reconciling" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passes[d.controller+d.request.String()]++
}

// limiter lets all passes through and counts them.
func (d *diary) limiter() ratelimiter.RateLimiter {
	return limiter{RateLimiter: ratelimiter.NewGlobal(100), pages: d.pages}
}

type limiter struct {
	ratelimiter.RateLimiter
	*pages
}

func (l limiter) When(item string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limited[item]++
	return l.RateLimiter.When(item)
}

func (p *pages) over(kind, name string) (passes, limited int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	item := fmt.Sprintf("managed/%s.%s%s/%s", kind, v1alpha1.Group, ns, name)
	item = strings.ToLower(item)
	return p.passes[item], p.limited[item]
}

func (b *bench) passes(kind, name string) int {
	n, _ := b.diary.over(kind, name)
	return n
}

// bundle makes a Secret with the PKI of the cluster, whose Kubernetes API is that of the management cluster itself: its Nodes
// can be had without any machine.
func (b *bench) bundle() string {
	b.t.Helper()
	made, err := machineconfig.NewBundle("v1.13.9")
	if err != nil {
		b.t.Fatalf("NewBundle(...): %v", err)
	}
	text, err := made.Marshal()
	if err != nil {
		b.t.Fatalf("Marshal(): %v", err)
	}
	var all map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		b.t.Fatalf("cannot read the bundle: %v", err)
	}
	encode := base64.StdEncoding.EncodeToString
	all["certs"].(map[string]any)["k8s"] = map[string]any{"crt": encode(b.api.PKI.CA.Cert), "key": encode(b.api.PKI.CA.Key)} //nolint:forcetypeassert // A test may panic.
	if text, err = yaml.Marshal(all); err != nil {
		b.t.Fatalf("cannot write the bundle: %v", err)
	}
	b.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "import"}, Data: map[string][]byte{connect.PKISecretKey: text}})
	return "import"
}

// wakesMachines: a machine that waits, and that nobody polls, goes on when what it waits for happens, and only then.
func (b *bench) wakesMachines() {
	b.t.Helper()
	lease := heldLock("another")
	b.create(lease)
	m := b.removesWorker()
	b.eventually("the removal waits for the lock", func() string {
		b.find(m, ns, worker)
		if r := m.GetCondition(v1alpha1.TypeRemoval); r.Reason != v1alpha1.ReasonWaitingForLock {
			return fmt.Sprintf("Removal is %s: %s", r.Reason, r.Message)
		}
		return ""
	})
	b.leavesInPeace(lease, m)

	lease.Spec.HolderIdentity = ptr.To("")
	if err := b.Update(b.ctx, lease); err != nil {
		b.t.Fatalf("cannot give the lock back: %v", err)
	}
	b.eventually("a removal goes on when the lock is given back", func() string {
		b.find(m, ns, worker)
		if r := m.GetCondition(v1alpha1.TypeRemoval); r.Reason == v1alpha1.ReasonWaitingForLock {
			return r.Message
		}
		return ""
	})
	b.wakesWorker("its Node changes", func() { b.joinsNode() })
	b.wakesWorker("its cluster changes", func() {
		c := b.cluster()
		b.change(c, func() { meta.AddLabels(c, map[string]string{"changed": "true"}) })
	})

	b.change(m, func() {
		m.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate})
	})
	b.eventually("a machine is let go", func() string {
		if b.find(m, ns, worker) {
			return "it is there"
		}
		return ""
	})
}

// removesWorker declares a worker whose removal has begun: it takes the lock without asking the machine first.
func (b *bench) removesWorker() *v1alpha1.TalosMachine {
	b.t.Helper()
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: worker, Finalizers: []string{v1alpha1.FinalizerMachine},
			Annotations: map[string]string{v1alpha1.AnnotationAllowDelete: "true"},
		},
		Spec: v1alpha1.TalosMachineSpec{ForProvider: v1alpha1.TalosMachineParameters{
			ClusterRef: &v1alpha1.ClusterReference{Name: cluster}, Role: v1alpha1.RoleWorker, Approved: true,
			Address: "127.0.0.1:1", UUID: workerUUID, Install: v1alpha1.MachineInstall{Disk: "/dev/sda"},
		}},
	}
	if err := m.SetRemovalRecord(v1alpha1.RemovalRecord{UUID: workerUUID}); err != nil {
		b.t.Fatalf("SetRemovalRecord(...): %v", err)
	}
	b.create(m)
	if err := b.Delete(b.ctx, m); err != nil {
		b.t.Fatalf("cannot delete the TalosMachine: %v", err)
	}
	return m
}

// leavesInPeace: what says nothing new wakes nobody. A lock is renewed every minute, and each pass over each machine of a large
// fleet writes a status.
func (b *bench) leavesInPeace(lease *coordinationv1.Lease, m *v1alpha1.TalosMachine) {
	b.t.Helper()
	c := b.cluster()
	quiet := func(what string, watching []client.Object, change func(i int) error) {
		b.t.Helper()
		before := make([]int, len(watching))
		for i, o := range watching {
			before[i] = b.passes(kindOf(o), o.GetName())
		}
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for i := range changes {
			<-ticker.C
			if err := change(i); err != nil {
				b.t.Fatalf("%s: %v", what, err)
			}
		}
		for i, o := range watching {
			if n := b.passes(kindOf(o), o.GetName()) - before[i]; n > peace {
				b.t.Errorf("%s woke %s %s: %d passes", what, kindOf(o), o.GetName(), n)
			}
		}
	}
	quiet("the renewal of a lock", []client.Object{m, c}, func(int) error {
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		return b.Update(b.ctx, lease)
	})
	quiet("the status of a cluster", []client.Object{m, c}, func(i int) error {
		before := c.DeepCopy()
		c.Status.AtProvider.Versions.Talos = []string{fmt.Sprint(i)}
		return b.Status().Patch(b.ctx, c, client.MergeFrom(before))
	})
	quiet("the status of a machine", []client.Object{m}, func(i int) error {
		before := m.DeepCopy()
		m.Status.AtProvider.TalosVersion = fmt.Sprint(i)
		return b.Status().Patch(b.ctx, m, client.MergeFrom(before))
	})
	for _, o := range []client.Object{m, c} {
		if passes, limited := b.diary.over(kindOf(o), o.GetName()); passes == 0 || limited < passes {
			b.t.Errorf("%s %s had %d passes, and the limit of all passes was asked %d times", kindOf(o), o.GetName(), passes, limited)
		}
	}
}

func kindOf(o client.Object) string {
	if _, ok := o.(*v1alpha1.TalosCluster); ok {
		return v1alpha1.TalosClusterKind
	}
	return v1alpha1.TalosMachineKind
}

// wakesWorker holds that the worker, at rest, is looked at when something happens.
func (b *bench) wakesWorker(what string, happen func()) {
	b.t.Helper()
	before := b.comesToRest(v1alpha1.TalosMachineKind, worker)
	happen()
	b.eventually("a machine is looked at when "+what, func() string {
		if b.passes(v1alpha1.TalosMachineKind, worker) == before {
			return "there was no pass"
		}
		return ""
	})
}

// comesToRest waits until an object has not been looked at for a while, and returns how often it was.
func (b *bench) comesToRest(kind, name string) int {
	b.t.Helper()
	last, since := -1, time.Now()
	b.eventually(name+" comes to rest", func() string {
		if n := b.passes(kind, name); n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) < 20*pause {
			return "it is looked at again and again"
		}
		return ""
	})
	return last
}

// joinsNode has the Node of the worker appear.
func (b *bench) joinsNode() {
	b.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "any-name"}}
	b.create(n)
	n.Status.NodeInfo.SystemUUID = workerUUID
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := b.Status().Update(b.ctx, n); err != nil {
		b.t.Fatalf("cannot write the status of a Node: %v", err)
	}
}

// remembersLittle: of what is read over and over only what somebody reads is kept in memory. Who wrote which field of every
// object, and the schemas of every kind of the management cluster, are the larger part of it.
func (b *bench) remembersLittle() {
	b.t.Helper()
	kept, whole := &v1alpha1.TalosCluster{}, b.cluster()
	if err := b.cached.Get(b.ctx, client.ObjectKeyFromObject(whole), kept); err != nil {
		b.t.Fatalf("cannot read the TalosCluster: %v", err)
	}
	if len(whole.GetManagedFields()) == 0 || len(kept.GetManagedFields()) != 0 {
		b.t.Errorf("%d managed fields, of which %d are kept in memory", len(whole.GetManagedFields()), len(kept.GetManagedFields()))
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := b.cached.Get(b.ctx, client.ObjectKey{Name: "talosclusters." + v1alpha1.Group}, crd); err != nil {
		b.t.Fatalf("cannot read a CustomResourceDefinition: %v", err)
	}
	for _, v := range crd.Spec.Versions {
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			b.t.Errorf("the schema of %s is kept in memory", v.Name)
		}
	}
}
