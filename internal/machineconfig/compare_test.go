package machineconfig

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

func compare(t *testing.T, desired, actual []byte) Comparison {
	t.Helper()
	c, err := Compare(desired, actual)
	if err != nil {
		t.Fatalf("Compare: %v", err)
	}
	return c
}

func patched(t *testing.T, all ...string) []byte {
	t.Helper()
	return render(t, func(in *Input) { in.Patches = patches(all...) })
}

func TestCompare(t *testing.T) {
	plain := render(t, nil)
	for _, tc := range []struct {
		reason          string
		desired, actual []byte
		want            Comparison
	}{
		{"the same bytes", plain, plain, Comparison{Equal: true, NeedsReboot: No}},
		{"comments and order do not matter", plain, append([]byte("# comment\n"), plain...), Comparison{Equal: true, NeedsReboot: No}},
		{"nothing is the same as empty", plain, []byte(strings.Replace(string(plain), "machine:\n", "machine:\n    env: {}\n    pods: []\n", 1)), Comparison{Equal: true, NeedsReboot: No}},
		{"the same time in other words", patched(t, "cluster:\n  adminKubeconfig:\n    certLifetime: 60m\n"), patched(t, "cluster:\n  adminKubeconfig:\n    certLifetime: 1h\n"), Comparison{Equal: true, NeedsReboot: No}},
		{"a value added", patched(t, "machine:\n  sysctls:\n    vm.x: '1'\n"), plain, Comparison{NeedsReboot: No, Diff: `+ machine.sysctls["vm.x"]: "1"`}},
		{"a value removed", plain, patched(t, "machine:\n  sysctls:\n    vm.x: '1'\n"), Comparison{NeedsReboot: No, Diff: `- machine.sysctls["vm.x"]: "1"`}},
		{"a value changed", render(t, func(in *Input) { in.KubernetesVersion = "v1.35.5" }), plain, Comparison{NeedsReboot: No, Diff: strings.Join([]string{
			`~ cluster.apiServer.image: "registry.k8s.io/kube-apiserver:v1.35.4" -> "registry.k8s.io/kube-apiserver:v1.35.5"`,
			`~ cluster.controllerManager.image: "registry.k8s.io/kube-controller-manager:v1.35.4" -> "registry.k8s.io/kube-controller-manager:v1.35.5"`,
			`~ cluster.proxy.image: "registry.k8s.io/kube-proxy:v1.35.4" -> "registry.k8s.io/kube-proxy:v1.35.5"`,
			`~ cluster.scheduler.image: "registry.k8s.io/kube-scheduler:v1.35.4" -> "registry.k8s.io/kube-scheduler:v1.35.5"`,
			`~ machine.kubelet.image: "ghcr.io/siderolabs/kubelet:v1.35.4" -> "ghcr.io/siderolabs/kubelet:v1.35.5"`,
		}, "\n")}},
		{"the installer's image is a difference, and never a reboot", render(t, func(in *Input) { in.InstallImage = "i.example/x:y" }), plain,
			Comparison{NeedsReboot: No, Diff: `~ machine.install.image: "installer.example.org/talos:v1.13.9" -> "i.example/x:y"`}},
		{"a document added", patched(t, "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: remote\nurl: tcp://192.0.2.9:1\n"), plain, Comparison{NeedsReboot: No, Diff: strings.Join([]string{
			`+ ["KmsgLogConfig/remote"].apiVersion: "v1alpha1"`, `+ ["KmsgLogConfig/remote"].kind: "KmsgLogConfig"`, `+ ["KmsgLogConfig/remote"].name: "remote"`, `+ ["KmsgLogConfig/remote"].url: "tcp://192.0.2.9:1"`,
		}, "\n")}},
		{"a reboot", patched(t, "machine:\n  udev:\n    rules: [a]\n"), plain, Comparison{NeedsReboot: Yes, Diff: `+ machine.udev.rules[0]: "a"`}},
		{"what only a newer Talos knows", plain, append(plain, "---\napiVersion: v1alpha1\nkind: FutureConfig\nsecretless: x\n"...), Comparison{NeedsReboot: No, Diff: strings.Join([]string{
			`- FutureConfig.apiVersion: (hidden)`, `- FutureConfig.kind: (hidden)`, `- FutureConfig.secretless: (hidden)`,
		}, "\n")}},
		{"a field that only a newer Talos knows", plain, []byte(strings.Replace(string(plain), "machine:\n", "machine:\n    future: x\n", 1)), Comparison{NeedsReboot: Unknown, Diff: `- machine.future: (hidden)`}},
		{"nothing is the same as empty to a newer Talos, too", future(plain, "a: {b: [], 1: 2}"), future(plain, "a: {1: 2}\nc: {d: {}}"), Comparison{Equal: true, NeedsReboot: No}},
		{"another kind of value", future(plain, "a: {b: 1}"), future(plain, "a: [1]"), Comparison{NeedsReboot: No, Diff: "- FutureConfig.a[0]: (hidden)\n+ FutureConfig.a.b: (hidden)"}},
		{"no main document", plain, []byte("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: cp-1\n"), Comparison{NeedsReboot: Unknown}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := compare(t, tc.desired, tc.actual)
			if tc.want.Diff == "" && !tc.want.Equal {
				got.Diff = "" // Whole documents: their number of lines is not what this is about.
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// future appends a document that this machinery does not know.
func future(config []byte, body string) []byte {
	return append(slices.Clone(config), "---\napiVersion: v1alpha1\nkind: FutureConfig\n"+body+"\n"...)
}

func TestCompareErrorsShowNothing(t *testing.T) {
	plain := render(t, nil)
	for _, bad := range []string{"machine:\n\ttoken: " + sesame, "- " + sesame, "version: v1alpha1\n---\nversion: " + sesame} {
		if _, err := Compare(plain, []byte(bad)); err == nil || strings.Contains(err.Error(), sesame[:4]) || !strings.Contains(err.Error(), "that runs") {
			t.Errorf("actual: %v", err)
		}
		if _, err := Compare([]byte(bad), plain); err == nil || strings.Contains(err.Error(), sesame[:4]) || !strings.Contains(err.Error(), "declared") {
			t.Errorf("desired: %v", err)
		}
		if _, err := Identify([]byte(bad)); err == nil || strings.Contains(err.Error(), sesame[:4]) {
			t.Errorf("Identify: %v", err)
		}
	}
}

func TestDiffIsBounded(t *testing.T) {
	for value, most := range map[string]int{strings.Repeat("1", 150): maxDiffBytes + 100, "1": maxDiffLines * 40} {
		var b strings.Builder
		for i := range 400 {
			fmt.Fprintf(&b, "    vm.x%03d: '%s'\n", i, value)
		}
		got := compare(t, patched(t, "machine:\n  sysctls:\n"+b.String()), render(t, nil))
		if len(got.Diff) > most || !strings.HasSuffix(got.Diff, fmt.Sprintf("(and %d more)", 400-strings.Count(got.Diff, "\n"))) {
			t.Errorf("%d bytes, ends with %q", len(got.Diff), got.Diff[len(got.Diff)-40:])
		}
	}
}

// keysOf returns the names of the fields of one of Talos's types.
func keysOf[T any]() []string {
	var keys []string
	for f := range reflect.TypeFor[T]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	return keys
}

// A machinery with a new field makes this red: look up whether Talos needs a reboot for it.
func TestEverySectionIsListed(t *testing.T) {
	for _, tc := range []struct {
		name              string
		keys              []string
		immediate, reboot []string
	}{
		{"configuration", keysOf[v1alpha1.Config](), append(slices.Clone(immediateTop), "machine"), rebootTop},
		{"machine", keysOf[v1alpha1.MachineConfig](), append(slices.Clone(immediateMachine), "features"), rebootMachine},
		{"features", keysOf[v1alpha1.FeaturesConfig](), immediateFeatures, rebootFeatures},
	} {
		t.Run(tc.name, func(t *testing.T) {
			listed := slices.Concat(tc.immediate, tc.reboot)
			slices.Sort(listed)
			if d := cmp.Diff(tc.keys, listed); d != "" {
				t.Errorf("-fields +listed:\n%s", d)
			}
		})
	}
}

func TestNeedsReboot(t *testing.T) {
	main := func(machine string) []byte { return []byte("version: v1alpha1\nmachine: {" + machine + "}\n") }
	for _, tc := range []struct {
		reason, have, want string
		answer             Answer
	}{
		{"an environment", "env: {A: b}", "env: {A: c}", Yes},
		{"a feature that can change", "features: {hostDNS: {enabled: true}}", "features: {hostDNS: {enabled: false}}", No},
		{"a feature that cannot", "features: {rbac: true}", "features: {rbac: false}", Yes},
		{"a feature nobody knows", "features: {future: true}", "features: {future: false}", Unknown},
		{"a section that nobody knows", "future: 1", "future: 2", Unknown},
		{"what is known to need it outweighs what is not known", "future: 1, env: {A: b}, zfuture: 1", "future: 2, env: {A: c}, zfuture: 2", Yes},
		{"a role", "type: worker", "type: controlplane", Yes},
		{"keys of the network", "network: {hostname: a}", "network: {hostname: b}", No},
		{"the whole of features", "features: {rbac: true}", "", Yes},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			have, err := parse(main(tc.have))
			if err != nil {
				t.Fatal(err)
			}
			want, err := parse(main(tc.want))
			if err != nil {
				t.Fatal(err)
			}
			if got := needsReboot(have, want); got != tc.answer {
				t.Errorf("got %s, want %s", got, tc.answer)
			}
		})
	}
}

func TestIdentify(t *testing.T) {
	b := testBundle(t)
	for _, tc := range []struct {
		reason string
		data   []byte
		want   Identity
	}{
		{"a control plane", render(t, nil), Identity{b.ClusterID(), "cp-1", RoleControlPlane}},
		{"a worker of an older Talos", render(t, func(in *Input) { in.Role, in.Hostname, in.ContractVersion = RoleWorker, "w-1", "v1.11.0" }), Identity{b.ClusterID(), "w-1", RoleWorker}},
		{"a newer Talos", []byte("machine: {type: worker, future: {a: b}}\ncluster: {id: x}\n---\napiVersion: v9\nkind: Future\n---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: w-1\nfuture: 1\n"), Identity{"x", "w-1", RoleWorker}},
		{"fields of another kind than they should be", []byte("machine: {type: [worker]}\ncluster: x\n"), Identity{}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got, err := Identify(tc.data)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	for _, empty := range []string{"", "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\n"} {
		if is, err := Identify([]byte(empty)); err == nil {
			t.Errorf("%q is %v", empty, is)
		}
	}
}

func TestAnswerString(t *testing.T) {
	for a, want := range map[Answer]string{Yes: "yes", No: "no", Unknown: "unknown", 0: "unknown"} {
		if a.String() != want {
			t.Errorf("%d is %q", a, a)
		}
	}
}
