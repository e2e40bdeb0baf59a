package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

// controllers are those of Kubernetes that make the cluster behave as people know it.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"daemonset-controller",
	"deployment-controller",
	"disruption-controller",
	"endpointslice-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"node-lifecycle-controller",
	"pod-garbage-collector-controller",
	"replicaset-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"statefulset-controller",
	"taint-eviction-controller",
}

// restartDelay keeps a control plane that cannot start from filling the log.
const restartDelay = 500 * time.Millisecond

// A session is the time from one start of the API server to its end. Its listers know that API server only.
type session struct {
	c     *Cluster
	nodes corelisters.NodeLister
	pods  corelisters.PodLister
	queue workqueue.TypedRateLimitingInterface[podKey]
	beat  chan struct{} // has a token when a kubelet has something to do at once

	ending    map[podKey]time.Time // when a pod was first seen terminating; the pod worker's own
	installed bool                 // the cluster's own pods have been created; the heartbeat's own
}

// supervise runs one session after another, each as long as etcd is there, until ctx ends.
func (c *Cluster) supervise(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		sessionCtx, ok := c.begin(ctx)
		if !ok {
			continue // etcd went again
		}
		err := c.run(sessionCtx)
		if c.end() && ctx.Err() == nil { // etcd is still there, or there again
			if err != nil && sessionCtx.Err() == nil {
				c.log.Error("the Kubernetes control plane ended and is started again", "error", err)
				pause(ctx, restartDelay)
			}
			signal(c.wake)
		}
	}
}

// begin makes the context of a session, which ends when etcd is lost. It reports whether etcd is there at all.
func (c *Cluster) begin(ctx context.Context) (context.Context, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.etcd {
		return nil, false
	}
	sessionCtx, cancel := context.WithCancel(ctx)
	c.lost = cancel
	return sessionCtx, true
}

// end forgets the session and reports whether etcd is there.
func (c *Cluster) end() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost()
	c.lost = nil
	return c.etcd
}

// run starts a control plane and the kubelets, and returns when ctx ends or one of the processes does. Everything that it
// started is gone then.
func (c *Cluster) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	api, err := c.startAPIServer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.Kill()) }()
	manager, err := c.startControllerManager()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Kill()) }()
	scheduler, err := controlplane.StartScheduler(controlplane.SchedulerOptions{
		Binary: c.o.Tools.Scheduler, Dir: c.o.Dir, Config: c.config,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scheduler.Kill()) }()

	var kubelets sync.WaitGroup
	defer kubelets.Wait()
	defer cancel()
	kubelets.Go(func() { c.runKubelets(ctx) })

	select {
	case <-ctx.Done():
		return nil
	case <-api.Died():
		return api.Err()
	case <-manager.Died():
		return manager.Err()
	case <-scheduler.Died():
		return scheduler.Err()
	}
}

func (c *Cluster) startAPIServer(ctx context.Context) (*controlplane.APIServer, error) {
	client, err := keyPair(c.o.PKI.Etcd).Issue(controlplane.Leaf{CommonName: "kube-apiserver"})
	if err != nil {
		return nil, err
	}
	return controlplane.StartAPIServer(ctx, controlplane.APIServerOptions{
		Binary: c.o.Tools.APIServer,
		Dir:    c.o.Dir,
		Bind:   c.o.Endpoint,
		PKI:    c.pki(),
		Etcd: controlplane.EtcdClient{
			Endpoints: []string{"https://" + c.balancer.address().String()},
			CA:        c.o.PKI.Etcd.Crt,
			Pair:      client,
		},
		ServiceCIDRs:    c.o.ServiceSubnets,
		Names:           c.o.Names,
		ServiceAccounts: true,
		Args: []string{
			fmt.Sprintf("--default-not-ready-toleration-seconds=%d", c.clock.tolerationSeconds()),
			fmt.Sprintf("--default-unreachable-toleration-seconds=%d", c.clock.tolerationSeconds()),
		},
	})
}

func (c *Cluster) startControllerManager() (*controlplane.Process, error) {
	return controlplane.StartControllerManager(controlplane.ControllerManagerOptions{
		Binary:      c.o.Tools.ControllerManager,
		Dir:         c.o.Dir,
		Config:      c.config,
		Controllers: controllers,
		PKI:         c.pki(),
		Args: []string{
			"--cluster-cidr=" + strings.Join(c.o.PodSubnets, ","),
			"--node-monitor-grace-period=" + c.clock.notReady().String(),
			"--node-monitor-period=" + c.clock.monitor().String(),
		},
	})
}

// runKubelets plays the kubelets of all nodes until ctx ends.
func (c *Cluster) runKubelets(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(c.client, 0)
	pods, nodes := factory.Core().V1().Pods(), factory.Core().V1().Nodes()
	s := &session{
		c: c, nodes: nodes.Lister(), pods: pods.Lister(), beat: make(chan struct{}, 1),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](
			50*time.Millisecond, 5*time.Second)),
		ending: map[podKey]time.Time{},
	}
	_, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.enqueue,
		UpdateFunc: func(_, now any) { s.enqueue(now) },
		DeleteFunc: s.enqueue,
	})
	if err != nil { // Only a stopped informer refuses a handler.
		c.log.Error("cannot watch pods", "error", err)
		return
	}
	nodes.Informer() // Asking for it is what makes the factory start it.
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())

	var workers sync.WaitGroup
	workers.Go(func() { s.workPods(ctx) })
	defer workers.Wait()
	defer s.queue.ShutDown()

	c.setSession(s)
	defer c.setSession(nil)
	s.beatUntil(ctx)
}

func (c *Cluster) setSession(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
}

// retryDelay is when a kubelet tries again after an error, if its next heartbeat is not sooner.
const retryDelay = 250 * time.Millisecond

// beatUntil lets every kubelet do its duty on each heartbeat, and at once when one has changed.
func (s *session) beatUntil(ctx context.Context) {
	for {
		next := s.c.clock.heartbeat()
		if err := s.attendAll(ctx); err != nil && ctx.Err() == nil {
			s.c.log.Debug("the kubelets try again", "error", err)
			next = min(next, retryDelay)
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-s.beat:
			timer.Stop()
		}
	}
}

// attendAll is one heartbeat of all kubelets. One that fails does not keep the others from theirs.
func (s *session) attendAll(ctx context.Context) error {
	var errs []error
	if !s.installed {
		err := install(ctx, s.c.client)
		s.installed = err == nil
		errs = append(errs, err)
	}
	for _, k := range s.c.kubelets() {
		if err := s.attend(ctx, k); err != nil {
			errs = append(errs, fmt.Errorf("node %q: %w", k.node.Name, err))
		}
	}
	return errors.Join(errs...)
}

// poke makes a kubelet act without waiting for its next heartbeat. The caller holds the cluster's lock.
func (s *session) poke(node string) {
	signal(s.beat)
	s.enqueueNode(node)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
