package lagging

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// A bench is a server whose writes are remembered, with two kinds.
type bench struct {
	t       *testing.T
	server  client.Client
	history *History
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, server: fake.NewClientBuilder().WithScheme(s).Build(), history: NewHistory()}
}

func (b *bench) write(o client.Object, do func() error) {
	b.t.Helper()
	if err := b.history.Write(context.Background(), b.server, o, do); err != nil {
		b.t.Fatal(err)
	}
}

// sees is what a process reads of an object: its value, or "gone".
func (b *bench) sees(c client.Reader) string {
	b.t.Helper()
	o := &corev1.ConfigMap{}
	err := c.Get(context.Background(), client.ObjectKey{Namespace: "a", Name: "x"}, o)
	if kerrors.IsNotFound(err) {
		return "gone"
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return o.Data["v"]
}

func (b *bench) lists(c client.Reader) []string {
	b.t.Helper()
	list := &corev1.ConfigMapList{}
	if err := c.List(context.Background(), list, client.InNamespace("a")); err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, o := range list.Items {
		out = append(out, o.Data["v"])
	}
	return out
}

func configMap(v string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}, Data: map[string]string{"v": v}}
}

// TestCacheIsOneWriteBehind reads an object after each of its writes, before and after it has caught up, in both ways to read.
func TestCacheIsOneWriteBehind(t *testing.T) {
	for _, how := range []string{"Get", "List"} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t)
			c := New(b.server, b.history, 0, &corev1.ConfigMap{})
			read := func() string {
				if how == "Get" {
					return b.sees(c)
				}
				if l := b.lists(c); len(l) > 0 {
					return l[0]
				}
				return "gone"
			}
			ctx, o := context.Background(), configMap("1")
			for _, step := range []struct {
				what string
				do   func() error
				was  string
				is   string
			}{
				{"create", func() error { return b.server.Create(ctx, o) }, "gone", "1"},
				{"update", func() error { o.Data["v"] = "2"; return b.server.Update(ctx, o) }, "1", "2"},
				{"delete", func() error { return b.server.Delete(ctx, o) }, "2", "gone"},
			} {
				b.write(o, step.do)
				got := []string{read(), read()}
				c.CatchUp(b.history.Writes())
				if diff := cmp.Diff([]string{step.was, step.was, step.is}, append(got, read())); diff != "" {
					t.Errorf("%s: -want, +got:\n%s", step.what, diff)
				}
			}
		})
	}
}

// TestCatchUp is each process's own affair.
func TestCatchUp(t *testing.T) {
	b := newBench(t)
	o := configMap("1")
	b.write(o, func() error { return b.server.Create(context.Background(), o) })
	c, other := New(b.server, b.history, 0, &corev1.ConfigMap{}), New(b.server, b.history, 0, &corev1.ConfigMap{})
	c.CatchUp(b.history.Writes())
	if diff := cmp.Diff([]string{"1", "gone"}, []string{b.sees(c), b.sees(other)}); diff != "" {
		t.Errorf("one process has caught up, the other not: -want, +got:\n%s", diff)
	}
}

// TestOtherKinds are read as they are, as those are that the client of the product does not cache.
func TestOtherKinds(t *testing.T) {
	b := newBench(t)
	c := New(b.server, b.history, 0, &corev1.Secret{})
	o := configMap("1")
	b.write(o, func() error { return b.server.Create(context.Background(), o) })
	if diff := cmp.Diff([]string{"1"}, b.lists(c)); diff != "" || b.sees(c) != "1" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
