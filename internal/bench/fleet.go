package bench

import (
	"context"
	"fmt"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// Subnet is where the machines of a bench are, from .11 on and beyond its last byte; .10 is the endpoint.
const Subnet = "127.20.0.0/16"

const (
	endpoint    = "https://127.20.0.10:6443"
	namespace   = "default"
	clusterName = "bench"

	// lookEvery is how often the bench looks whether what it waits for has come. It reads objects, so not too often.
	lookEvery = 5 * time.Second
	// patience is how long it waits for a step of one machine, and perMachine what each of many adds to that.
	patience   = 8 * time.Minute
	perMachine = 3 * time.Second
)

// found declares a cluster with its control planes, and waits until it is ready.
func (b *bench) found(ctx context.Context) error {
	site := &v1alpha1.ClusterProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	site.Spec.Credentials.Source = xpv2.CredentialsSourceNone
	c := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName}}
	p := &c.Spec.ForProvider
	p.Endpoint = endpoint
	p.ControlPlane.Count = controlPlanes
	p.Versions.Talos, p.Versions.Kubernetes = "v1.13.9", "v1.35.4"
	c.Spec.WriteConnectionSecretToReference = &xpv2.LocalSecretReference{Name: clusterName + "-connection"}
	for _, o := range []client.Object{site, c} {
		if err := b.kube.Create(ctx, o); err != nil {
			return fmt.Errorf("cannot declare the cluster: %w", err)
		}
	}
	for i := range controlPlanes {
		if err := b.declareControlPlane(ctx, fmt.Sprintf("cp-%d", i+1)); err != nil {
			return err
		}
	}
	b.progressf("%d control planes are coming up", controlPlanes)
	return b.allReady(ctx, controlPlanes)
}

// grow declares workers until there are n machines, and waits until all are ready.
func (b *bench) grow(ctx context.Context, n int) error {
	missing := n - b.workers - controlPlanes
	for range missing {
		b.workers++
		if err := b.declare(ctx, fmt.Sprintf("worker-%d", b.workers), v1alpha1.RoleWorker); err != nil {
			return err
		}
	}
	b.progressf("%d more workers are coming up", missing)
	return b.allReady(ctx, n)
}

// declareControlPlane declares a machine whose calls are counted apart: it is asked for the whole cluster as well.
func (b *bench) declareControlPlane(ctx context.Context, name string) error {
	if len(b.blank) > 0 {
		b.planes[b.blank[0].Name] = true
	}
	return b.declare(ctx, name, v1alpha1.RoleControlPlane)
}

// declare an approved machine at the next address where a blank one is.
func (b *bench) declare(ctx context.Context, name string, role v1alpha1.MachineRole) error {
	if len(b.blank) == 0 {
		return fmt.Errorf("there is no blank machine left for %q", name)
	}
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Annotations: map[string]string{v1alpha1.AnnotationAllowDelete: "true"},
	}}
	p := &m.Spec.ForProvider
	p.ClusterRef = &v1alpha1.ClusterReference{Name: clusterName}
	p.Role, p.Approved, p.Address = role, true, b.blank[0].Address
	p.Install.Disk = "/dev/sda"
	if err := b.kube.Create(ctx, m); err != nil {
		return fmt.Errorf("cannot declare machine %q: %w", name, err)
	}
	b.blank = b.blank[1:]
	return nil
}

// allReady waits until n machines and their cluster are ready.
func (b *bench) allReady(ctx context.Context, n int) error {
	return b.await(ctx, patience+time.Duration(n)*perMachine, func(ctx context.Context) error {
		l := &v1alpha1.TalosMachineList{}
		if err := b.kube.List(ctx, l, client.InNamespace(namespace)); err != nil {
			return err
		}
		ready, last := 0, ""
		for i := range l.Items {
			m := &l.Items[i]
			if m.GetCondition(xpv2.TypeReady).Status == corev1.ConditionTrue {
				ready++
				continue
			}
			last = fmt.Sprintf("%s: %s %s", m.GetName(), m.GetCondition(xpv2.TypeReady).Message, m.GetCondition("Synced").Message)
		}
		if ready != n || len(l.Items) != n {
			return fmt.Errorf("%d of %d machines are ready; the last of the others: %s", ready, n, last)
		}
		c := &v1alpha1.TalosCluster{}
		if err := b.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, c); err != nil {
			return err
		}
		if r := c.GetCondition(xpv2.TypeReady); r.Status != corev1.ConditionTrue {
			return fmt.Errorf("the cluster is not ready: %s", r.Message)
		}
		return nil
	})
}

// await asks until the answer is no error, or says the last one.
func (b *bench) await(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, lookEvery, limit, true, func(ctx context.Context) (bool, error) {
		last = ask(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waited %s in vain: %w", limit, last)
	}
	return nil
}
