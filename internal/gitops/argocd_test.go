package gitops

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestArgoCDShowsHealth runs the health checks as Argo CD does.
func TestArgoCDShowsHealth(t *testing.T) {
	argo := loadLua(t)
	for name, s := range samples() {
		t.Run(name, func(t *testing.T) {
			status, message := argo.health(t, s.object)
			if status != s.argo || message != s.message {
				t.Errorf("Argo CD shows %s %q, want %s %q", status, message, s.argo, s.message)
			}
		})
	}
}

// luaChecks are the data of the ConfigMap argocd-cm.
type luaChecks map[string]string

func loadLua(t *testing.T) luaChecks {
	t.Helper()
	content, err := os.ReadFile("../../examples/gitops/argocd-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cm := corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(content, &cm); err != nil {
		t.Fatal(err)
	}
	return cm.Data
}

// health runs the check of the object's kind with what Argo CD gives it: one second, the object in the global obj, and the
// libraries package, base and table. A script that uses another, such as string, fails there and here.
func (c luaChecks) health(t *testing.T, object *unstructured.Unstructured) (status, message string) {
	t.Helper()
	gvk := object.GroupVersionKind()
	script := c["resource.customizations.health."+gvk.Group+"_"+gvk.Kind]
	if script == "" {
		t.Fatalf("argocd-cm has no health check of %s", gvk)
	}
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := contextWithin(t, time.Second)
	defer cancel()
	l.SetContext(ctx)
	l.SetGlobal("obj", toLua(t, l, object.Object))
	if err := l.DoString(script); err != nil {
		t.Fatalf("the health check of %s fails: %v", gvk.Kind, err)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the health check of %s returns no table", gvk.Kind)
	}
	message, _ = stringOf(result.RawGetString("message"))
	status, _ = stringOf(result.RawGetString("status"))
	return status, message
}

func stringOf(v lua.LValue) (string, bool) {
	s, ok := v.(lua.LString)
	return string(s), ok
}

// toLua turns a value of JSON into one of Lua.
func toLua(t *testing.T, l *lua.LState, value any) lua.LValue {
	t.Helper()
	switch v := value.(type) {
	case nil:
		return lua.LNil
	case bool:
		return lua.LBool(v)
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(toLua(t, l, item))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, item := range v {
			table.RawSetString(key, toLua(t, l, item))
		}
		return table
	}
	content, _ := json.Marshal(value)
	t.Fatalf("cannot turn a %T into a value of Lua: %s", value, content)
	return nil
}
