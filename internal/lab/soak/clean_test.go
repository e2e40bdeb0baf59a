package soak

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/maesh/provider-ichor/internal/lab/story"
)

// TestClean holds that logs lose the secrets that there are now and those that were learned before, also when nobody answers.
func TestClean(t *testing.T) {
	there := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pkiSecret},
		Data:       map[string][]byte{"secrets.yaml": []byte("{secrets: {bootstraptoken: abcdef.0123456789abcdef}}")},
	}
	before := there.DeepCopy()
	before.Data["secrets.yaml"] = []byte("{cluster: {secret: learned-before}}")
	down := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("nobody answers")
	}}
	const log = "joined with abcdef.0123456789abcdef, and learned-before"
	for name, tc := range map[string]struct {
		funcs      interceptor.Funcs
		want, told string
	}{
		"Up":   {interceptor.Funcs{}, "joined with (hidden), and (hidden)", ""},
		"Down": {down, "joined with abcdef.0123456789abcdef, and (hidden)", "not all known: nobody answers"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &campaign{kube: fake.NewClientBuilder().WithObjects(there).WithInterceptorFuncs(tc.funcs).Build(), secrets: story.Secrets{}, out: io.Discard}
			if err := c.secrets.LearnFrom(before); err != nil {
				t.Fatal(err)
			}
			if got := c.clean(t.Context())(log); got != tc.want {
				t.Errorf("%q is left, want %q", got, tc.want)
			}
			if told := strings.Join(c.report.Story, "\n"); !strings.Contains(told, tc.told) || (told == "") != (tc.told == "") {
				t.Errorf("told %q, want %q", told, tc.told)
			}
		})
	}
}
