package waiting

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// clientManager is a manager of which only the client is asked for.
type clientManager struct {
	manager.Manager

	client client.Client
}

func (m clientManager) GetClient() client.Client { return m.client }

func TestConflictIsRepeatedSoon(t *testing.T) {
	conflict := kerrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("changed meanwhile"))
	writes := map[string]func(client.Client, client.Object) error{
		"Update":       func(c client.Client, o client.Object) error { return c.Update(context.Background(), o) },
		"Patch":        func(c client.Client, o client.Object) error { return c.Patch(context.Background(), o, client.Merge) },
		"StatusUpdate": func(c client.Client, o client.Object) error { return c.Status().Update(context.Background(), o) },
		"StatusPatch": func(c client.Client, o client.Object) error {
			return c.Status().Patch(context.Background(), o, client.Merge)
		},
	}
	answers := map[string]struct {
		reason string
		answer error
		after  time.Duration
	}{
		"Conflict": {reason: "What the pass found out was not written: it is neither put off for a wait nor for a backoff.", answer: conflict, after: Soon},
		"Written":  {reason: "A pass that waits, and said so, is put off.", after: Interval},
		"Failed":   {reason: "Any other failure says nothing of the wait.", answer: errors.New("boom"), after: Interval},
	}
	for write, do := range writes {
		for name, tc := range answers {
			t.Run(write+name, func(t *testing.T) {
				inner := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
					Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return tc.answer },
					Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
						return tc.answer
					},
					SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
						return tc.answer
					},
					SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
						return tc.answer
					},
				}).Build()
				hints := NewHints(0)
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
				hints.Give(client.ObjectKeyFromObject(pod))

				err := do(hints.Manager(clientManager{client: inner}).GetClient(), pod)
				if !errors.Is(err, tc.answer) {
					t.Errorf("\n%s\nthe write answers %v, want %v", tc.reason, err, tc.answer)
				}
				if after, hinted := hints.take(client.ObjectKeyFromObject(pod)); !hinted || after != tc.after {
					t.Errorf("\n%s\nhint %t: again after %s, want %s", tc.reason, hinted, after, tc.after)
				}
			})
		}
	}
}

func TestStatusIsWrittenIfItChanges(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*corev1.Pod)
		unread error
		writes int
	}{
		"Same": {
			reason: "What stands there already is not written again.",
			change: func(*corev1.Pod) {},
		},
		"Changed": {
			reason: "A new status is written.",
			change: func(p *corev1.Pod) { p.Status.Message = "new" },
			writes: 1,
		},
		"OtherVersion": {
			reason: "Another version than the last one is for the API server to judge: it answers with a conflict.",
			change: func(p *corev1.Pod) { p.ResourceVersion = "1" },
			writes: 1,
		},
		"Unread": {
			reason: "If nobody knows what stands there, it is written.",
			change: func(*corev1.Pod) {},
			unread: errors.New("boom"),
			writes: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			writes := 0
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}, Status: corev1.PodStatus{Message: "old"}}
			inner := fake.NewClientBuilder().WithObjects(pod).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if tc.unread != nil {
						return tc.unread
					}
					return c.Get(ctx, key, o, opts...)
				},
				SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
					writes++
					return nil
				},
			}).Build()
			mgr := NewHints(0).Manager(clientManager{client: inner})
			o := &corev1.Pod{}
			if tc.unread == nil {
				if err := inner.Get(t.Context(), client.ObjectKeyFromObject(pod), o); err != nil {
					t.Fatalf("cannot read the pod: %v", err)
				}
			} else {
				pod.DeepCopyInto(o)
			}
			tc.change(o)

			if err := mgr.GetClient().Status().Update(t.Context(), o); err != nil {
				t.Fatalf("\n%s\nUpdate(...): %v", tc.reason, err)
			}
			if writes != tc.writes {
				t.Errorf("\n%s\n%d writes, want %d", tc.reason, writes, tc.writes)
			}
		})
	}
}
