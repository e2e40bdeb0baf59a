package machineconfig

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPatches(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		patches []Patch
		want    map[string]any
	}{
		{"a strategic merge patch", patches("machine:\n  sysctls:\n    vm.x: '1'\n"), map[string]any{`machine.sysctls["vm.x"]`: "1"}},
		{"a JSON 6902 patch in JSON, with two documents", patches(`[{"op":"add","path":"/machine/sysctls","value":{"vm.x":"1"}}]`), map[string]any{
			`machine.sysctls["vm.x"]`: "1", "HostnameConfig.hostname": "cp-1",
		}},
		{"a JSON 6902 patch in YAML", patches("- op: replace\n  path: /cluster/network/dnsDomain\n  value: k8s.example\n"), map[string]any{"cluster.network.dnsDomain": "k8s.example"}},
		{"one after the other", patches("machine:\n  env:\n    A: '1'\n", `[{"op":"test","path":"/machine/env/A","value":"1"},{"op":"replace","path":"/machine/env/A","value":"2"}]`, "machine:\n  env:\n    B: '3'\n"),
			map[string]any{"machine.env.A": "2", "machine.env.B": "3"}},
		{"a further document", patches("apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: remote\nurl: tcp://192.0.2.9:1\n"), map[string]any{`["KmsgLogConfig/remote"].url`: "tcp://192.0.2.9:1"}},
		{"several documents in one patch", patches("machine:\n  sysctls:\n    vm.x: '1'\n---\napiVersion: v1alpha1\nkind: KmsgLogConfig\nname: remote\nurl: tcp://192.0.2.9:1\n"),
			map[string]any{`machine.sysctls["vm.x"]`: "1", `["KmsgLogConfig/remote"].url`: "tcp://192.0.2.9:1"}},
		{"invalid in between, valid in the end", patches("machine:\n  nodeLabels:\n    'not a label': x\n", "machine:\n  nodeLabels:\n    'not a label':\n      $patch: delete\n"), map[string]any{"machine.type": "controlplane"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			all := values(t, render(t, func(in *Input) { in.Patches = tc.patches }))
			got := map[string]any{}
			for k := range tc.want {
				got[k] = all[k]
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// sesame is a secret that patches below set in many ways. No error may show it or a piece of it.
const sesame = "open-sesame-0123456789"

func TestPatchesThatCannotBeUsed(t *testing.T) {
	good := "machine:\n  sysctls:\n    vm.x: '1'\n"
	for _, tc := range []struct {
		reason string
		worker bool
		bad    string
		want   string
	}{
		{"nothing", false, " \n", "it is empty"},
		{"neither YAML nor JSON", false, "machine:\n\tenv: " + sesame, "it is not YAML or JSON (line 2)"},
		{"a bare text", false, sesame, ""},
		{"an unknown field", false, "machine:\n  sesame: " + sesame + "\n", "Talos does not know machine.sesame"},
		{"an unknown field that is empty", false, "machine:\n  sesame:\n", "Talos does not know machine.sesame"},
		{"an unknown field with a value in parts", false, "machine:\n  sesame: x;" + sesame + "\n  simsalabim: {a: [" + sesame + "]}\n", "Talos does not know machine.sesame, machine.simsalabim.a"},
		{"an unknown field set by JSON 6902", false, `[{"op":"add","path":"/machine/sesame","value":"` + sesame + `"}]`, "Talos does not know machine.sesame; a JSON 6902 patch changes the document with machine and cluster, use a strategic merge patch for the others"},
		{"a field of another document by JSON 6902", false, `[{"op":"replace","path":"/hostname","value":"` + sesame + `"}]`, "use a strategic merge patch for the others"},
		{"an unknown document", false, "apiVersion: v1alpha1\nkind: SesameConfig\nvalue: " + sesame + "\n", "SesameConfig"},
		{"a value of the wrong type", false, "machine:\n  certSANs:\n    a: " + sesame + "\n", ""},
		{"a text where a number belongs", false, "cluster:\n  controlPlane:\n    localAPIServerPort: " + sesame + "\n", ""},
		{"a test that fails", false, `[{"op":"test","path":"/machine/type","value":"` + sesame + `"}]`, "JSON 6902"},
		{"a path that leads nowhere", false, `[{"op":"replace","path":"/machine/env/A","value":"` + sesame + `"}]`, "/machine/env/A"},
		{"the main document removed", false, "$patch: delete\n", ""},
		{"the machine removed", false, `[{"op":"remove","path":"/machine"}]`, "it removes machine or cluster"},
		{"another role", false, "machine:\n  type: worker\n", "it must not change machine.type (set role instead)"},
		{"another hostname", false, "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\n", "it must not change the hostname (set hostname instead)"},
		{"another cluster", false, "cluster:\n  id: " + sesame + "\n", "it must not change cluster.id"},
		{"another cluster secret", false, "cluster:\n  secret: " + sesame + "\n", "it must not change cluster.secret"},
		{"another join token", false, "cluster:\n  token: " + sesame + "\n", "it must not change cluster.token"},
		{"another machine token", false, "machine:\n  token: " + sesame + "\n", "it must not change machine.token"},
		{"no authority", false, `[{"op":"remove","path":"/machine/ca"}]`, "it must not change machine.ca"},
		{"no authority of the cluster", false, `[{"op":"remove","path":"/cluster/ca"}]`, "it must not change cluster.ca"},
		{"what Talos would refuse", false, "machine:\n  nodeLabels:\n    'not a label': " + sesame + "\n", "the configuration is not valid with it: "},
		{"a value that Talos would refuse and show", false, "machine:\n  nodeTaints:\n    a: " + sesame + ":Sesame\n", "the configuration is not valid with it: "},
		{"a value that Talos would refuse and show, of a document", false, "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: x\nurl: http://user:" + sesame + "@192.0.2.1\n", "the configuration is not valid with it: "},
		{"a value that cannot be read", false, "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: x\nurl: http://user:%zz" + sesame + "@192.0.2.1\n", ""},
		{"an address of the main document that cannot be read", false, "cluster:\n  controlPlane:\n    endpoint: https://%zz" + sesame + "\n", ""},
		{"a name of a network plugin", false, "cluster:\n  network:\n    cni:\n      name: " + sesame + "\n", ""},
		{"an argument that Talos refuses", false, "machine:\n  systemDiskEncryption:\n    state:\n      provider: " + sesame + "\n      keys: []\n", ""},
		{"a range", false, "cluster:\n  etcd:\n    advertisedSubnets: [" + sesame + "]\n", ""},
		{"a key of control planes for a worker", true, "machine:\n  files:\n  - path: /var/x\n    op: create\n    content: |\n      KEY\n", "it gives a secret of control planes to a worker, in machine.files[0].content"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bad := tc.bad
			if tc.worker {
				key := strings.TrimSpace(string(testBundle(t).secrets.Certs.Etcd.Key))
				bad = strings.ReplaceAll(bad, "KEY", strings.ReplaceAll(key, "\n", "\n      "))
			}
			_, err := Render(testInput(t, func(in *Input) {
				in.Patches = patches(good, bad, good)
				if tc.worker {
					in.Role = RoleWorker
				}
			}))
			var pe *PatchError
			if !errors.As(err, &pe) {
				t.Fatalf("error = %v", err)
			}
			if pe.Name != "configPatches[1]" || !strings.HasPrefix(err.Error(), "cannot use configPatches[1]: ") {
				t.Errorf("the wrong patch is blamed: %v", err)
			}
			if !strings.Contains(pe.Problem, tc.want) || pe.Problem == "" {
				t.Errorf("problem %q, want %q", pe.Problem, tc.want)
			}
			if strings.Contains(err.Error(), sesame[:6]) || strings.Contains(err.Error(), "PRIVATE KEY") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the text shows what the patch sets, or has lines: %q", err)
			}
		})
	}
}

func TestTheRightPatchIsBlamed(t *testing.T) {
	for i := range 3 {
		all := []string{"machine:\n  sysctls:\n    vm.x: '1'\n", "machine:\n  sysctls:\n    vm.y: '1'\n", "machine:\n  sysctls:\n    vm.z: '1'\n"}
		all[i] = "machine:\n  nodeLabels:\n    'not a label': x\n"
		_, err := Render(testInput(t, func(in *Input) { in.Patches = patches(all...) }))
		var pe *PatchError
		if !errors.As(err, &pe) || pe.Name != "configPatches["+string(rune('0'+i))+"]" {
			t.Errorf("patch %d: %v", i, err)
		}
	}
}
