package act

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubectl/pkg/drain"

	"github.com/maesh/provider-ichor/internal/decide/permit"
)

const (
	// drainBudget is how long one pass asks for evictions. A pass has a minute for everything; what is not asked for in
	// time is asked for in the next one.
	drainBudget = 20 * time.Second

	// evictionsAtOnce bounds how many evictions are asked for at the same time.
	evictionsAtOnce = 8

	// blockersNamed bounds how many blockers a message names: a condition is read by people.
	blockersNamed = 5
)

// DrainOptions say what a drain may do that loses something. Nothing of it is ever forced silently.
type DrainOptions struct {
	// Force evicts pods that no controller will create again.
	Force bool
	// DeleteEmptyDirData evicts pods whose emptyDir volumes are lost with them.
	DeleteEmptyDirData bool
}

// A DrainBlockedError says which pods keep a drain from going on, and why. It is a wait, not a failure: the drain is
// asked for again in every pass.
type DrainBlockedError struct {
	Node string
	// Blockers, each a sentence that names a pod and what protects it, in the order of pod names.
	Blockers []string
}

func (e *DrainBlockedError) Error() string {
	named, rest := e.Blockers, ""
	if n := len(named) - blockersNamed; n > 0 {
		named, rest = named[:blockersNamed], fmt.Sprintf("; and %d more", n)
	}
	return fmt.Sprintf("the drain of Node %q is blocked: %s%s", e.Node, strings.Join(named, "; "), rest)
}

// Drain asks once for the eviction of every pod that kubectl drain would evict, and does not wait for them to end: the
// next survey sees what is left. It returns *DrainBlockedError if a pod cannot be evicted now.
func (a *Actor) Drain(ctx context.Context, lock Lock, p permit.Permit, step string, t Target, k kubernetes.Interface, o DrainOptions) error {
	if err := a.permitted(ctx, lock, p, t, step); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, drainBudget)
	defer cancel()

	h := NewDrainHelper(ctx, k, o)
	list, errs := h.GetPodsForDeletion(t.Node)
	if list == nil {
		return fmt.Errorf("cannot list the pods of Node %q: %w", t.Node, errs[0])
	}
	if len(errs) > 0 {
		// kubectl evicts nothing at all in this case. Neither do we: a drain that cannot end would take pods down for
		// nothing until a person has decided.
		return &DrainBlockedError{Node: t.Node, Blockers: unevictable(errs)}
	}
	blockers, err := evict(ctx, h, list.Pods())
	if err != nil {
		return fmt.Errorf("cannot drain Node %q: %w", t.Node, err)
	}
	if len(blockers) > 0 {
		return &DrainBlockedError{Node: t.Node, Blockers: blockers}
	}
	return nil
}

// NewDrainHelper returns kubectl's own drain helper. Its filters decide which pods a drain evicts.
func NewDrainHelper(ctx context.Context, k kubernetes.Interface, o DrainOptions) *drain.Helper {
	return &drain.Helper{
		Ctx:                 ctx,
		Client:              k,
		Force:               o.Force,
		DeleteEmptyDirData:  o.DeleteEmptyDirData,
		IgnoreAllDaemonSets: true,
		GracePeriodSeconds:  -1, // each pod's own
		ChunkSize:           500,
		Out:                 io.Discard,
		ErrOut:              io.Discard,
	}
}

// evict asks for the eviction of pods that do not end yet, and returns a sentence for each that is refused.
func evict(ctx context.Context, h *drain.Helper, pods []corev1.Pod) ([]string, error) {
	blockers := make([]string, len(pods))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(evictionsAtOnce)
	for i, pod := range pods {
		if pod.GetDeletionTimestamp() != nil {
			continue
		}
		g.Go(func() error {
			err := h.EvictPod(pod, policyv1.SchemeGroupVersion)
			switch {
			case err == nil, kerrors.IsNotFound(err):
				return nil
			case kerrors.IsTooManyRequests(err):
				blockers[i] = blockedByBudget(ctx, h.Client, pod)
				return nil
			case kerrors.IsForbidden(err) && kerrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
				blockers[i] = fmt.Sprintf("pod %s/%s is in a namespace that is being deleted", pod.GetNamespace(), pod.GetName())
				return nil
			}
			return fmt.Errorf("cannot evict pod %s/%s: %w", pod.GetNamespace(), pod.GetName(), err)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	blockers = slices.DeleteFunc(blockers, func(s string) bool { return s == "" })
	slices.Sort(blockers)
	return blockers, nil
}

// blockedByBudget says which PodDisruptionBudget protects a pod whose eviction was refused.
func blockedByBudget(ctx context.Context, k kubernetes.Interface, pod corev1.Pod) string {
	name := pod.GetNamespace() + "/" + pod.GetName()
	list, err := k.PolicyV1().PodDisruptionBudgets(pod.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Sprintf("pod %s is protected by a PodDisruptionBudget that cannot be read", name)
	}
	for i := range list.Items {
		b := &list.Items[i]
		s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !s.Matches(labels.Set(pod.GetLabels())) || b.Status.DisruptionsAllowed > 0 {
			continue
		}
		return fmt.Sprintf("pod %s is protected by PodDisruptionBudget %q, which allows %d disruptions now (%d healthy, %d needed): have more such pods elsewhere, or change the budget",
			name, b.GetName(), b.Status.DisruptionsAllowed, b.Status.CurrentHealthy, b.Status.DesiredHealthy)
	}
	return fmt.Sprintf("the API server refuses the eviction of pod %s for now", name)
}

// unevictable makes sentences of the errors of kubectl's filters, with ours of what a person can do.
func unevictable(errs []error) []string {
	s := make([]string, 0, len(errs))
	for _, err := range errs {
		// kubectl's own sentences begin with this once or twice.
		text := strings.ReplaceAll(err.Error(), "cannot delete ", "")
		text = strings.ReplaceAll(text, "(use --force to override)", "(spec.forProvider.drain.force evicts them)")
		text = strings.ReplaceAll(text, "(use --delete-emptydir-data to override)", "(spec.forProvider.drain.deleteEmptyDirData evicts them)")
		s = append(s, text)
	}
	slices.Sort(s)
	return s
}
