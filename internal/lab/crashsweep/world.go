package crashsweep

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

const (
	namespace        = "default"
	clusterName      = "sweep"
	connectionSecret = "sweep-connection"
	pkiSecret        = "sweep-talos-pki"
	stageMaintenance = "maintenance"

	// declared is how many control planes the cluster is to have at rest, and workers how many workers: two, so that the one that
	// goes is not the one that has just come.
	declared, workers = 3, 2
)

// Where the API of the cluster is for the provider, and where it really is: what the provider writes passes the front.
func (s *sweep) endpoint() string { return s.host(10) }
func (s *sweep) behind() string   { return s.host(9) }

func (s *sweep) host(last byte) string {
	a := s.o.Subnet.Addr().As4()
	a[3] = last
	return netip.AddrPortFrom(netip.AddrFrom4(a), 6443).String()
}

// declareAll declares the cluster with its first machines: those that are not declared yet, if somebody died meanwhile.
func (s *sweep) declareAll(ctx context.Context) error {
	site := &v1alpha1.ClusterProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	site.Spec.Credentials.Source = xpv2.CredentialsSourceNone
	t := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName}}
	p := &t.Spec.ForProvider
	p.Endpoint = "https://" + s.endpoint()
	p.ControlPlane.Count = declared
	p.Versions.Talos, p.Versions.Kubernetes = "v1.13.9", "v1.35.4"
	p.ConfigPatches = []v1alpha1.ClusterConfigPatch{{Scope: v1alpha1.PatchScopeAll, ConfigPatch: v1alpha1.ConfigPatch{
		Inline: "cluster:\n  controlPlane:\n    endpoint: https://" + s.behind() + "\n",
	}}}
	t.Spec.WriteConnectionSecretToReference = &xpv2.LocalSecretReference{Name: connectionSecret}
	if err := s.kube.Create(ctx, site); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("cannot declare the site: %w", err)
	}
	if err := s.kube.Create(ctx, t); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("cannot declare the cluster: %w", err)
	}
	there, err := s.machines(ctx)
	if err != nil {
		return err
	}
	for s.joined = 0; s.joined < declared; s.joined++ {
		name := fmt.Sprintf("cp-%d", s.joined+1)
		if slices.ContainsFunc(there, func(m v1alpha1.TalosMachine) bool { return m.GetName() == name }) {
			continue
		}
		if err := s.declare(ctx, name, v1alpha1.RoleControlPlane); err != nil {
			return err
		}
	}
	for n := count(there, v1alpha1.RoleWorker); n < workers; n++ {
		if err := s.declareWorker(ctx); err != nil {
			return err
		}
	}
	return nil
}

func count(machines []v1alpha1.TalosMachine, role v1alpha1.MachineRole) int {
	n := 0
	for i := range machines {
		if machines[i].Spec.ForProvider.Role == role {
			n++
		}
	}
	return n
}

func (s *sweep) declareWorker(ctx context.Context) error {
	if err := s.declare(ctx, fmt.Sprintf("worker-%d", s.hired+1), v1alpha1.RoleWorker); err != nil {
		return err
	}
	s.hired++
	return nil
}

// declare an approved machine on one that is blank and free.
func (s *sweep) declare(ctx context.Context, name string, role v1alpha1.MachineRole) error {
	machines, err := s.lab.Fleet.Machines(ctx)
	if err != nil {
		return err
	}
	taken, err := s.machines(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(machines, func(m lab.Machine) bool {
		return m.Stage == stageMaintenance && !slices.ContainsFunc(taken, func(t v1alpha1.TalosMachine) bool { return t.Spec.ForProvider.Address == m.Address })
	})
	if i < 0 {
		return fmt.Errorf("no machine is blank and free for %s", name)
	}
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p := &m.Spec.ForProvider
	p.ClusterRef = &v1alpha1.ClusterReference{Name: clusterName}
	p.Role, p.Approved, p.Address = role, true, machines[i].Address
	p.Install.Disk = "/dev/sda"
	if err := s.kube.Create(ctx, m); err != nil {
		return fmt.Errorf("cannot declare %s: %w", name, err)
	}
	return nil
}

func (s *sweep) machines(ctx context.Context) ([]v1alpha1.TalosMachine, error) {
	list := &v1alpha1.TalosMachineList{}
	err := s.kube.List(ctx, list, client.InNamespace(namespace))
	return list.Items, err
}

func (s *sweep) machine(ctx context.Context, name string) (*v1alpha1.TalosMachine, error) {
	m := &v1alpha1.TalosMachine{}
	return m, s.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, m)
}

// change a machine as a person does, who looks again when somebody else was faster.
func (s *sweep) change(ctx context.Context, name string, f func(*v1alpha1.TalosMachine)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		m, err := s.machine(ctx, name)
		if err != nil {
			return err
		}
		f(m)
		return s.kube.Update(ctx, m)
	})
}

// remove allows the delete of an object and asks for it.
func (s *sweep) remove(ctx context.Context, o client.Object) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := s.kube.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		a := o.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		a[v1alpha1.AnnotationAllowDelete] = "true"
		o.SetAnnotations(a)
		return s.kube.Update(ctx, o)
	})
	if err != nil {
		return fmt.Errorf("cannot allow the delete of %s: %w", o.GetName(), err)
	}
	return s.kube.Delete(ctx, o)
}

// rests wants so many control planes and workers, all as they are declared, nobody at work and nothing half done.
func (s *sweep) rests(ctx context.Context, controlPlanes, workers int) error {
	all, err := s.machines(ctx)
	if err != nil {
		return err
	}
	if len(all) != controlPlanes+workers {
		return fmt.Errorf("%d machines are declared, want %d", len(all), controlPlanes+workers)
	}
	for i := range all {
		for _, kind := range []xpv2.ConditionType{xpv2.TypeReady, v1alpha1.TypeConfigApplied} {
			if c := all[i].GetCondition(kind); c.Status != corev1.ConditionTrue {
				return fmt.Errorf("%s: %s is %s: %s: %s (%s)", all[i].GetName(), kind, c.Status, c.Reason, c.Message, all[i].GetCondition(xpv2.TypeSynced).Message)
			}
		}
	}
	t := &v1alpha1.TalosCluster{}
	if err := s.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, t); err != nil {
		return err
	}
	is := t.Status.AtProvider.ControlPlanes
	if c := t.GetCondition(xpv2.TypeReady); c.Status != corev1.ConditionTrue || is.HealthyVoters != controlPlanes || is.Voters != controlPlanes {
		return fmt.Errorf("the cluster is Ready=%s (%s), %d of %d voters are healthy, want %d", c.Status, c.Message, is.HealthyVoters, is.Voters, controlPlanes)
	}
	return errors.Join(s.lockFree(ctx), s.nodesRest(ctx, controlPlanes+workers))
}

func (s *sweep) lockFree(ctx context.Context) error {
	list := &coordinationv1.LeaseList{}
	if err := s.kube.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	for _, l := range list.Items {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			return fmt.Errorf("%s still holds the lock %s", *l.Spec.HolderIdentity, l.Name)
		}
	}
	return nil
}

// nodesRest wants so many Nodes and none of them cordoned.
func (s *sweep) nodesRest(ctx context.Context, want int) error {
	list, err := s.nodes.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if list.Items[i].Spec.Unschedulable {
			return fmt.Errorf("the Node %s is still cordoned", list.Items[i].Name)
		}
	}
	if len(list.Items) != want {
		return fmt.Errorf("there are %d Nodes, want %d", len(list.Items), want)
	}
	return nil
}

// meet stands in front of the API of the cluster as soon as there is a PKI to do it with, and looks at it from behind.
func (s *sweep) meet(ctx context.Context) error {
	if s.workload != nil {
		return nil
	}
	pki := &corev1.Secret{}
	if err := s.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pkiSecret}, pki); err != nil {
		return err
	}
	var bundle struct {
		Certs struct {
			K8s struct{ Crt, Key []byte }
		}
	}
	if err := yaml.Unmarshal(pki.Data["secrets.yaml"], &bundle); err != nil {
		return errors.New("cannot read the authority of Kubernetes from the PKI Secret")
	}
	ca := controlplane.KeyPair{Cert: bundle.Certs.K8s.Crt, Key: bundle.Certs.K8s.Key}
	to, err := controlplane.AdminConfig(controlplane.PKI{CA: ca}, netip.MustParseAddrPort(s.behind()))
	if err != nil {
		return err
	}
	to.QPS = -1
	if s.nodes, err = kubernetes.NewForConfig(to); err != nil {
		return err
	}
	at := netip.MustParseAddrPort(s.endpoint())
	cert, err := certificate(ca, controlplane.Leaf{CommonName: "front", IPs: []net.IP{at.Addr().AsSlice()}})
	if err != nil {
		return err
	}
	h, err := forward("workload", to, s.fuse, nil)
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca.Cert)
	s.workload, err = serve(ctx, at.String(), &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12,
	}, h)
	return err
}
