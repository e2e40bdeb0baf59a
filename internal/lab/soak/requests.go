package soak

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
	"github.com/maesh/provider-ichor/internal/lab"
)

const (
	stageMaintenance = "maintenance"
	// hold is the annotation of whoever holds removals in a campaign.
	hold = v1alpha1.AnnotationHoldPrefix + "soak"
	// label is what Relabel changes, and env what Reconfigure changes.
	label = "example.org/soak"
	env   = "SOAK"
	// takenBack is what is counted when a machine is declared again whose removal was called off.
	takenBack = "declare again what was let go of"
	// baited is what is counted when an event lies in wait and no job comes by itself.
	baited = "bait a job: change what needs a reboot"
	// notNow is what comes of an event that there is nothing for.
	notNow = "not now: there is no such machine"
)

// do an event. One that waits for its moment, or takes its time, does not hold up what comes after it.
func (c *campaign) do(ctx context.Context, e Event) {
	if e.Midway || e.Do == CallOff || e.Do > Cut {
		c.lasting.Go(func() { c.finish(ctx, e) })
		return
	}
	c.finish(ctx, e)
}

// finish does an event when its moment has come, tells what came of it and counts that.
func (c *campaign) finish(ctx context.Context, e Event) {
	where, early := "", true
	if e.Midway {
		where, early = c.lieInWait(ctx, e, c.bait)
	}
	to, err := tooLate, error(nil)
	if early {
		to, err = c.carryOut(ctx, e)
	}
	came := Done
	switch {
	case kerrors.IsForbidden(err) || kerrors.IsInvalid(err):
		came = Refused
	case unanswered(err):
		came = Unasked
	case err != nil:
		came = Failed
	case strings.HasPrefix(to, "not now"):
		came = NotNow
	}
	line := fmt.Sprintf("#%d %s", e.Number, e)
	if early && where != "" {
		line += " (" + where + ")"
	}
	if to != "" && (err == nil || to != notNow) {
		line += ": " + to
	}
	if err != nil {
		line += fmt.Sprintf(": %s: %v", headings[came], err)
	}
	c.tellf("%s", line)
	c.note(e, came)
	if e.Do == DeleteUnasked && came == Done {
		c.watch.note(func(j *judge) {
			j.breakf(c.begun.Add(e.At), "permission", "the delete of %s was admitted without permission", to)
		})
	}
}

// carryOut does an event. It returns what it was done to.
func (c *campaign) carryOut(ctx context.Context, e Event) (string, error) {
	if e.Do >= Break {
		return c.harm(ctx, e)
	}
	switch e.Do {
	case DeclareControlPlane:
		return c.declareBlank(ctx, fmt.Sprintf("cp-e%d", e.Number), v1alpha1.RoleControlPlane)
	case DeclareWorker:
		return c.declareBlank(ctx, fmt.Sprintf("worker-e%d", e.Number), v1alpha1.RoleWorker)
	case Approve:
		return c.approve(ctx, e)
	case Delete, DeleteUnasked:
		return c.remove(ctx, e)
	case CallOff:
		return c.callOff(ctx, e)
	case Relabel, Reconfigure:
		return c.reconfigure(ctx, e)
	case SetCount:
		return "", c.changeCluster(ctx, func(t *v1alpha1.TalosCluster) { t.Spec.ForProvider.ControlPlane.Count = e.Count })
	case Hold:
		return c.hold(ctx, e)
	default:
		return "", fmt.Errorf("there is no action %d", e.Do)
	}
}

// endpoint of the cluster: an address before those of the machines.
func (c *campaign) endpoint() string {
	at := c.lab.Subnet().Masked().Addr().As4()
	at[3] = 10
	return "https://" + netip.AddrPortFrom(netip.AddrFrom4(at), 6443).String()
}

func (c *campaign) declareCluster(ctx context.Context) error {
	site := &v1alpha1.ClusterProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	site.Spec.Credentials.Source = xpv2.CredentialsSourceNone
	t := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName}}
	p := &t.Spec.ForProvider
	p.Endpoint = c.endpoint()
	p.ControlPlane.Count = c.plan.Size
	p.Versions.Talos, p.Versions.Kubernetes = "v1.13.9", "v1.35.4"
	t.Spec.WriteConnectionSecretToReference = &xpv2.LocalSecretReference{Name: connectionSecret}
	for _, o := range []client.Object{site, t} {
		if err := c.kube.Create(ctx, o); err != nil {
			return fmt.Errorf("cannot declare the cluster: %w", err)
		}
	}
	return nil
}

// declare a machine. The judge has to know before whether it is approved.
func (c *campaign) declare(ctx context.Context, name string, role v1alpha1.MachineRole, address string, approved bool) error {
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p := &m.Spec.ForProvider
	p.ClusterRef = &v1alpha1.ClusterReference{Name: clusterName}
	p.Role, p.Approved, p.Address = role, approved, address
	p.Install.Disk = "/dev/sda"
	return c.kube.Create(ctx, m)
}

// declareBlank declares a machine that is blank and not declared yet, but never the last one: of two control planes neither can
// go, so that one is needed to come to rest. One whose removal was called off comes first: it is declared again as it was, or
// etcd keeps a member that nobody knows.
func (c *campaign) declareBlank(ctx context.Context, name string, role v1alpha1.MachineRole) (string, error) {
	if again, err := c.takeBack(ctx); again != "" || err != nil {
		return again, err
	}
	blank, err := c.blank(ctx)
	if len(blank) < 2 || err != nil {
		return notNow, err
	}
	m := blank[0]
	// It was wiped, so whoever approved it before did not approve this.
	c.watch.note(func(j *judge) { delete(j.approved, m.Name) })
	return name + " at " + m.Name, c.declare(ctx, name, role, m.Address, false)
}

// blank are the machines in maintenance mode that nobody declares.
func (c *campaign) blank(ctx context.Context) ([]lab.Machine, error) {
	declared, err := c.declared(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.lab.Fleet.Machines(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(m lab.Machine) bool {
		return m.Stage != stageMaintenance ||
			slices.ContainsFunc(declared, func(d v1alpha1.TalosMachine) bool { return d.Spec.ForProvider.Address == m.Address })
	}), nil
}

// takeBack declares a machine again whose object is gone and that was left as it was; empty if there is none.
func (c *campaign) takeBack(ctx context.Context) (string, error) {
	for name, was := range c.letGo() {
		err := c.kube.Get(ctx, client.ObjectKeyFromObject(&was), &v1alpha1.TalosMachine{})
		if !kerrors.IsNotFound(err) {
			if err != nil {
				return "", err
			}
			continue
		}
		m, err := c.lab.Fleet.At(ctx, was.Spec.ForProvider.Address)
		if err != nil {
			return "", err
		}
		if m.Stage != stageMaintenance {
			err := c.declare(ctx, name, was.Spec.ForProvider.Role, m.Address, true)
			if unanswered(err) {
				c.count(takenBack, Unasked)
				return "", err
			}
			c.count(takenBack, Done)
			c.forget(name)
			return name + ", again", err
		}
		c.forget(name)
	}
	return "", nil
}

// letGo are the machines whose removal was called off, by name.
func (c *campaign) letGo() map[string]v1alpha1.TalosMachine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.abandoned)
}

func (c *campaign) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.abandoned, name)
}

func (c *campaign) declared(ctx context.Context) ([]v1alpha1.TalosMachine, error) {
	list := &v1alpha1.TalosMachineList{}
	err := c.kube.List(ctx, list, client.InNamespace(namespace))
	return list.Items, err
}

// pick draws one of the machines that something can be done to; nil if there is none.
func (c *campaign) pick(ctx context.Context, e Event, can func(*v1alpha1.TalosMachine) bool) (*v1alpha1.TalosMachine, error) {
	all, err := c.declared(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(m v1alpha1.TalosMachine) bool { return !can(&m) })
	if len(all) == 0 {
		return nil, nil //nolint:nilnil // None is an answer.
	}
	m := draw(all, e.Pick, func(m v1alpha1.TalosMachine) string { return m.GetName() })
	return &m, nil
}

func wanted(m *v1alpha1.TalosMachine) bool { return m.GetDeletionTimestamp() == nil }

// worked tells whether there is something to do for the provider when a machine is changed or deleted: one that nobody has approved is
// only let go of, so it is what one event in four is for.
func worked(m *v1alpha1.TalosMachine, e Event) bool {
	return m.Spec.ForProvider.Approved || e.Pick%8 < 2
}

func leaving(m *v1alpha1.TalosMachine) bool { return m.GetDeletionTimestamp() != nil }

func (c *campaign) approve(ctx context.Context, e Event) (string, error) {
	m, err := c.pick(ctx, e, func(m *v1alpha1.TalosMachine) bool { return wanted(m) && !m.Spec.ForProvider.Approved })
	if m == nil || err != nil {
		return notNow, err
	}
	at, err := c.lab.Fleet.At(ctx, m.Spec.ForProvider.Address)
	if err != nil {
		return m.GetName(), err
	}
	c.watch.note(func(j *judge) { j.approved[at.Name] = true })
	return m.GetName(), c.change(ctx, m, func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Approved = true })
}

func (c *campaign) remove(ctx context.Context, e Event) (string, error) {
	m, err := c.pick(ctx, e, func(m *v1alpha1.TalosMachine) bool {
		return wanted(m) && worked(m, e) && (e.Do == Delete || m.GetAnnotations()[v1alpha1.AnnotationAllowDelete] == "")
	})
	if m == nil || err != nil {
		return notNow, err
	}
	if e.Do == Delete {
		return m.GetName(), c.removeAllowed(ctx, m)
	}
	return m.GetName(), c.kube.Delete(ctx, m)
}

// removeAllowed allows the delete of a machine and asks for it.
func (c *campaign) removeAllowed(ctx context.Context, m *v1alpha1.TalosMachine) error {
	err := c.change(ctx, m, func(m *v1alpha1.TalosMachine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationAllowDelete, "true")
	})
	if err != nil {
		return err
	}
	return c.kube.Delete(ctx, m)
}

// everythingButDelete is what is left of the management policies of a machine whose removal is called off.
var everythingButDelete = xpv2.ManagementPolicies{xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate, xpv2.ManagementActionLateInitialize}

// callOff calls the removal of a machine off that is being deleted, at whatever step that is; if none is, one is deleted first.
func (c *campaign) callOff(ctx context.Context, e Event) (string, error) {
	m, err := c.pick(ctx, e, func(m *v1alpha1.TalosMachine) bool { return leaving(m) && !m.LeftAlone() })
	if err != nil {
		return "", err
	}
	if m == nil {
		name, err := c.remove(ctx, Event{Number: e.Number, Do: Delete, Pick: e.Pick})
		if name == notNow || err != nil {
			return name, err
		}
		c.tellf("        %s is deleted, to be called off after %s", name, e.For)
		c.until(ctx, e.For)
		m = &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	was := &v1alpha1.TalosMachine{}
	err = c.change(ctx, m, func(m *v1alpha1.TalosMachine) {
		*was = *m.DeepCopy()
		c.mu.Lock()
		c.abandoned[m.GetName()] = *was
		c.mu.Unlock()
		m.SetManagementPolicies(everythingButDelete)
	})
	if kerrors.IsNotFound(err) {
		c.forget(m.GetName())
		return "not now: " + m.GetName() + " is gone already", nil
	}
	return fmt.Sprintf("%s, which said %s", m.GetName(), was.GetCondition(v1alpha1.TypeRemoval).Reason), err
}

// reconfigure changes a machine: what Talos changes as it runs, or what it needs a reboot for.
func (c *campaign) reconfigure(ctx context.Context, e Event) (string, error) {
	m, err := c.pick(ctx, e, func(m *v1alpha1.TalosMachine) bool { return wanted(m) && worked(m, e) })
	if m == nil || err != nil {
		return notNow, err
	}
	value := fmt.Sprintf("e%d", e.Number)
	if e.Do == Reconfigure {
		return m.GetName(), c.rebootFor(ctx, m, value)
	}
	return m.GetName(), c.change(ctx, m, func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Node.Labels = map[string]string{label: value} })
}

// rebootFor changes what a machine runs only after a reboot.
func (c *campaign) rebootFor(ctx context.Context, m *v1alpha1.TalosMachine, value string) error {
	return c.change(ctx, m, func(m *v1alpha1.TalosMachine) {
		m.Spec.ForProvider.ConfigPatches = []v1alpha1.ConfigPatch{{Inline: "machine:\n  env:\n    " + env + ": " + value + "\n"}}
	})
}

// bait changes a machine so that it needs a reboot, which is a job that nearly always may be done.
func (c *campaign) bait(ctx context.Context, e Event) {
	m, err := c.pick(ctx, e, func(m *v1alpha1.TalosMachine) bool { return wanted(m) && m.Spec.ForProvider.Approved })
	came := Done
	switch {
	case err != nil:
		came = Unasked
	case m == nil:
		came = NotNow
	case c.rebootFor(ctx, m, fmt.Sprintf("bait%d", e.Number)) != nil:
		came = Unasked
	default:
		c.tellf("        #%d lies in wait: %s is changed and needs a reboot", e.Number, m.GetName())
	}
	c.count(baited, came)
}

// hold a removal for a while, as somebody who moves data first.
func (c *campaign) hold(ctx context.Context, e Event) (string, error) {
	m, err := c.pick(ctx, e, func(*v1alpha1.TalosMachine) bool { return true })
	if m == nil || err != nil {
		return notNow, err
	}
	return m.GetName(), c.lasts(ctx, e, func(ctx context.Context, on bool) error {
		if on {
			return client.IgnoreNotFound(c.change(ctx, m, func(m *v1alpha1.TalosMachine) {
				metav1.SetMetaDataAnnotation(&m.ObjectMeta, hold, "its data moves first")
			}))
		}
		return c.surely(ctx, func(ctx context.Context) error {
			return client.IgnoreNotFound(c.change(ctx, m, func(m *v1alpha1.TalosMachine) { delete(m.Annotations, hold) }))
		})
	})
}

// change a machine as a person does, who looks again when somebody else was faster.
func (c *campaign) change(ctx context.Context, m *v1alpha1.TalosMachine, f func(*v1alpha1.TalosMachine)) error {
	return c.persist(ctx, func(ctx context.Context) error {
		is := &v1alpha1.TalosMachine{}
		if err := c.kube.Get(ctx, client.ObjectKeyFromObject(m), is); err != nil {
			return err
		}
		f(is)
		return c.kube.Update(ctx, is)
	})
}

func (c *campaign) changeCluster(ctx context.Context, f func(*v1alpha1.TalosCluster)) error {
	return c.persist(ctx, func(ctx context.Context) error {
		is := &v1alpha1.TalosCluster{}
		if err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, is); err != nil {
			return err
		}
		f(is)
		return c.kube.Update(ctx, is)
	})
}

// persist repeats what lost a race. What was not answered in time is an error, which RetryOnConflict by itself would swallow: it
// takes the end of a request's time for that of its own.
func (c *campaign) persist(ctx context.Context, try func(context.Context) error) error {
	var last error
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		last = try(ctx)
		return last
	})
	return cmp.Or(last, err)
}
