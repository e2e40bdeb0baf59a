package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

// standstill is how long a removal may say the same before that counts as its last word.
const standstill = 60 * time.Second

// rest brings the cluster to rest as a person would who follows what the conditions say: removals end, or say what they wait
// for; every machine that is wanted is ready.
func (c *campaign) rest(ctx context.Context) error {
	if err := c.lab.Err(); err != nil {
		return err
	}
	said := map[string]words{}
	var since time.Time // it has been at rest
	defer func() {
		for _, name := range slices.Sorted(maps.Keys(said)) {
			c.tellf("%s last said %s", name, said[name].text)
		}
	}()
	return c.await(ctx, "every removal has ended or says why not, and everything else is Ready", func(ctx context.Context) error {
		if c.violated(len(c.plan.Events)) {
			return nil
		}
		if err := c.help(ctx); err != nil {
			return err
		}
		if err := c.atRest(ctx, said); err != nil {
			since = time.Time{}
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		// A pass or two more, so that nothing that was under way looks like rest.
		if left := silence - time.Since(since); left > 0 {
			return fmt.Errorf("it has to stay at rest for %s", left.Round(time.Second))
		}
		return nil
	})
}

// words are what a condition said, and since when.
type words struct {
	text  string
	since time.Time
}

// help does what conditions ask people for: removals that were called off too late go on, machines that were let go of are
// taken back, and an even number of control planes is made odd.
func (c *campaign) help(ctx context.Context) error {
	all, err := c.declared(ctx)
	if err != nil {
		return err
	}
	approved, wantedNow, leavingNow := 0, 0, 0
	for i := range all {
		m := &all[i]
		if leaving(m) && m.LeftAlone() {
			err := c.change(ctx, m, func(m *v1alpha1.TalosMachine) {
				m.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionAll})
			})
			if client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		if m.IsApprovedControlPlane(clusterName) {
			approved++
			if leaving(m) {
				leavingNow++
			} else {
				wantedNow++
			}
		}
	}
	if again, err := c.takeBack(ctx); again != "" || err != nil {
		c.tellf("%s is declared", again)
		return err
	}
	if approved%2 == 0 && leavingNow == 0 {
		return c.makeOdd(ctx, wantedNow)
	}
	return c.lowerCount(ctx, wantedNow)
}

// lowerCount declares what there is, so that nothing waits for machines that nobody declares.
func (c *campaign) lowerCount(ctx context.Context, controlPlanes int) error {
	count := 1
	for _, n := range sizes {
		if n <= controlPlanes {
			count = n
		}
	}
	t := &v1alpha1.TalosCluster{}
	if err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, t); err != nil {
		return err
	}
	if t.Spec.ForProvider.ControlPlane.Count == count {
		return nil
	}
	c.tellf("%d control planes are declared", count)
	return c.changeCluster(ctx, func(t *v1alpha1.TalosCluster) { t.Spec.ForProvider.ControlPlane.Count = count })
}

// makeOdd approves one more control plane, or lets one go if no machine is blank.
func (c *campaign) makeOdd(ctx context.Context, controlPlanes int) error {
	blank, err := c.blank(ctx)
	if err != nil {
		return err
	}
	if len(blank) == 0 {
		return c.oneLess(ctx, controlPlanes)
	}
	m := blank[0]
	name := "cp-odd-" + m.Name
	c.tellf("the number of control planes is even: %s is declared at %s", name, m.Name)
	c.watch.note(func(j *judge) { j.approved[m.Name] = true })
	return c.declare(ctx, name, v1alpha1.RoleControlPlane, m.Address, true)
}

// oneLess removes a control plane and declares that so many are enough.
func (c *campaign) oneLess(ctx context.Context, controlPlanes int) error {
	if err := c.lowerCount(ctx, controlPlanes-1); err != nil {
		return err
	}
	m, err := c.pick(ctx, Event{}, func(m *v1alpha1.TalosMachine) bool { return wanted(m) && m.IsApprovedControlPlane(clusterName) })
	if err != nil {
		return err
	}
	if m == nil {
		return errors.New("the number of control planes is even, and none can go")
	}
	c.tellf("the number of control planes is even and no machine is blank: %s is deleted, with permission", m.GetName())
	return c.removeAllowed(ctx, m)
}

// atRest is an error as long as something is under way. It remembers what removals say.
func (c *campaign) atRest(ctx context.Context, said map[string]words) error {
	all, err := c.declared(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(said, func(name string, _ words) bool {
		return !slices.ContainsFunc(all, func(m v1alpha1.TalosMachine) bool { return m.GetName() == name })
	})
	for i := range all {
		m := &all[i]
		switch {
		case leaving(m):
			if err := stuck(m, said); err != nil {
				return err
			}
		case m.Spec.ForProvider.Approved:
			if err := ready(m); err != nil {
				return err
			}
			if err := applied(m, said); err != nil {
				return err
			}
		}
	}
	if err := c.clusterReady(ctx); err != nil {
		return err
	}
	if names := c.watch.cordons(ctx); len(names) > 0 {
		return fmt.Errorf("%v are cordoned", names)
	}
	return nil
}

// stuck wants a removal that has not ended to have said for a while what it waits for.
func stuck(m *v1alpha1.TalosMachine, said map[string]words) error {
	return lastWord(m, v1alpha1.TypeRemoval, said)
}

// applied wants a machine to run what is declared, or to say for a while why not: the only control plane is rebooted by nobody
// but a person.
func applied(m *v1alpha1.TalosMachine, said map[string]words) error {
	if m.GetCondition(v1alpha1.TypeConfigApplied).Status == corev1.ConditionTrue {
		delete(said, m.GetName())
		return nil
	}
	return lastWord(m, v1alpha1.TypeConfigApplied, said)
}

// lastWord wants a condition that is False to have given the same reason for a while.
func lastWord(m *v1alpha1.TalosMachine, kind xpv2.ConditionType, said map[string]words) error {
	r := m.GetCondition(kind)
	is := fmt.Sprintf("%s: %s: %s", kind, r.Reason, r.Message)
	if said[m.GetName()].text != is {
		said[m.GetName()] = words{text: is, since: time.Now()}
	}
	if r.Status != corev1.ConditionFalse || r.Reason == "" || r.Message == "" || time.Since(said[m.GetName()].since) < standstill {
		return fmt.Errorf("%s goes on: %s", m.GetName(), is)
	}
	return nil
}

func ready(m *v1alpha1.TalosMachine) error {
	if r := m.GetCondition(xpv2.TypeReady); r.Status != corev1.ConditionTrue {
		return fmt.Errorf("%s is not Ready: %s: %s (%s)", m.GetName(), r.Reason, r.Message, m.GetCondition(xpv2.TypeSynced).Message)
	}
	return nil
}

func (c *campaign) clusterReady(ctx context.Context) error {
	t := &v1alpha1.TalosCluster{}
	if err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, t); err != nil {
		return err
	}
	if r := t.GetCondition(xpv2.TypeReady); r.Status != corev1.ConditionTrue {
		return fmt.Errorf("the cluster is not Ready: %s: %s", r.Reason, r.Message)
	}
	return nil
}

// allReady wants everything to be ready that is declared.
func (c *campaign) allReady(ctx context.Context) error {
	all, err := c.declared(ctx)
	if err := errors.Join(err, c.lab.Err()); err != nil {
		return err
	}
	for i := range all {
		if err := ready(&all[i]); err != nil {
			return err
		}
	}
	return c.clusterReady(ctx)
}
