package gitops

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestFluxShowsHealth evaluates the health checks as Flux does.
func TestFluxShowsHealth(t *testing.T) {
	flux := loadExpressions(t)
	for name, s := range samples() {
		t.Run(name, func(t *testing.T) {
			if status := flux.status(t, s.object); status != s.flux {
				t.Errorf("Flux says %s, want %s", status, s.flux)
			}
		})
	}
}

// A healthCheck is what a Kustomization says of one kind.
type healthCheck struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	InProgress string `json:"inProgress"`
	Failed     string `json:"failed"`
	Current    string `json:"current"`
}

type healthChecks []healthCheck

func loadExpressions(t *testing.T) healthChecks {
	t.Helper()
	content, err := os.ReadFile("../../examples/gitops/flux.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(content), "\n---\n") {
		k := struct {
			Spec struct {
				HealthCheckExprs healthChecks `json:"healthCheckExprs"`
			} `json:"spec"`
		}{}
		if err := yaml.Unmarshal([]byte(document), &k); err != nil {
			t.Fatal(err)
		}
		if len(k.Spec.HealthCheckExprs) > 0 {
			return k.Spec.HealthCheckExprs
		}
	}
	t.Fatal("no Kustomization has health checks")
	return nil
}

// status asks in the order in which Flux does: in progress, failed, current; and in progress if nothing is true. An
// expression that cannot be evaluated, as before an object has a status, makes Flux ask again until its time is up.
func (h healthChecks) status(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	for _, c := range h {
		if c.APIVersion != object.GetAPIVersion() || c.Kind != object.GetKind() {
			continue
		}
		for _, e := range []struct{ expression, status string }{{c.InProgress, inProgress}, {c.Failed, failed}, {c.Current, current}} {
			is, err := evaluate(t, e.expression, object.Object)
			if _, observed := object.Object["status"]; err != nil && !observed {
				return inProgress
			}
			if err != nil {
				t.Fatalf("cannot evaluate whether %s is %s: %v", c.Kind, e.status, err)
			}
			if is {
				return e.status
			}
		}
		return inProgress
	}
	t.Fatalf("flux.yaml has no health check of %s", object.GroupVersionKind())
	return ""
}

// evaluate an expression in the environment that Flux makes: it is parsed and not type-checked, and the top-level fields of
// the object are its variables.
func evaluate(t *testing.T, expression string, object map[string]any) (bool, error) {
	t.Helper()
	env, err := cel.NewEnv(cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true), cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(), ext.Sets(), ext.Encoders())
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Parse(expression)
	if issues.Err() != nil {
		t.Fatalf("cannot parse %q: %v", expression, issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	value, _, err := program.ContextEval(t.Context(), object)
	if err != nil {
		return false, err
	}
	is, ok := value.(types.Bool)
	if !ok {
		t.Fatalf("%q is no boolean", expression)
	}
	return bool(is), nil
}

func contextWithin(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}
