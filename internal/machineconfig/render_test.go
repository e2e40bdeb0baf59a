package machineconfig

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

// values reads a rendered configuration by its paths.
func values(t *testing.T, data []byte) map[string]any {
	t.Helper()
	all, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	leaves(bodies(all), nil, func(at path, v any) { got[strings.TrimPrefix(at.String(), mainDocument+".")] = v })
	return got
}

func TestRenderSetsWhatIsDeclared(t *testing.T) {
	worker := func(in *Input) { in.Role, in.Hostname = RoleWorker, "w-1" }
	for _, tc := range []struct {
		reason string
		change func(*Input)
		want   map[string]any
	}{
		{"a control plane with defaults", nil, map[string]any{
			"machine.type": "controlplane", "machine.install.disk": "/dev/sda", "machine.install.image": "installer.example.org/talos:v1.13.9",
			"cluster.clusterName": "one", "cluster.controlPlane.endpoint": "https://192.0.2.10:6443",
			"cluster.network.podSubnets[0]": "10.244.0.0/16", "cluster.network.serviceSubnets[0]": "10.96.0.0/12", "cluster.network.dnsDomain": "cluster.local",
			"machine.kubelet.image": "ghcr.io/siderolabs/kubelet:v1.35.4", "HostnameConfig.hostname": "cp-1", "HostnameConfig.auto": nil,
		}},
		{"a worker", worker, map[string]any{"machine.type": "worker", "HostnameConfig.hostname": "w-1"}},
		{"Kubernetes without a v", func(in *Input) { in.KubernetesVersion = "1.35.4" }, map[string]any{"machine.kubelet.image": "ghcr.io/siderolabs/kubelet:v1.35.4"}},
		{"a disk selector", func(in *Input) {
			in.InstallDisk, in.InstallDiskSelector = "", &DiskSelector{Size: ">= 100GB", Type: "nvme", Model: "X*", Serial: "s", WWID: "w", BusPath: "/b/*"}
		}, map[string]any{
			"machine.install.disk": nil, "machine.install.diskSelector.size": ">= 100GB", "machine.install.diskSelector.type": "nvme", "machine.install.diskSelector.model": "X*",
			"machine.install.diskSelector.serial": "s", "machine.install.diskSelector.wwid": "w", "machine.install.diskSelector.busPath": "/b/*",
		}},
		{"a network", func(in *Input) {
			in.Network = Network{PodCIDRs: []string{"10.1.0.0/16", "fd00::/64"}, ServiceCIDRs: []string{"10.2.0.0/16"}, DNSDomain: "k8s.example", CNI: "none"}
		}, map[string]any{
			"cluster.network.podSubnets[0]": "10.1.0.0/16", "cluster.network.podSubnets[1]": "fd00::/64", "cluster.network.serviceSubnets[0]": "10.2.0.0/16",
			"cluster.network.serviceSubnets[1]": nil, "cluster.network.dnsDomain": "k8s.example", "cluster.network.cni.name": "none",
		}},
		{"names of certificates", func(in *Input) { in.CertSANs = []string{"api.example.org"} }, map[string]any{
			"machine.certSANs[0]": "api.example.org", "cluster.apiServer.certSANs[0]": "api.example.org",
		}},
		{"a Node's labels keep Talos's own", func(in *Input) {
			in.NodeLabels, in.NodeAnnotations = map[string]string{"rack": "7"}, map[string]string{"who": "me"}
		}, map[string]any{"machine.nodeLabels.rack": "7", `machine.nodeLabels["node.kubernetes.io/exclude-from-external-load-balancers"]`: "", "machine.nodeAnnotations.who": "me"}},
		{"taints of a control plane", func(in *Input) { in.NodeTaints = []Taint{{"a", "b", "NoSchedule"}} }, map[string]any{"machine.nodeTaints.a": "b:NoSchedule"}},
		{"taints of a worker, which Kubernetes lets it set only when it registers", func(in *Input) {
			worker(in)
			in.NodeTaints = []Taint{{"a", "b", "NoSchedule"}, {"a", "", "NoExecute"}}
		}, map[string]any{
			"machine.nodeTaints.a": nil, "machine.kubelet.extraConfig.registerWithTaints[0].key": "a", "machine.kubelet.extraConfig.registerWithTaints[0].effect": "NoSchedule",
			"machine.kubelet.extraConfig.registerWithTaints[1].effect": "NoExecute",
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			all := values(t, render(t, tc.change))
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

func TestRenderForTheOlderVersion(t *testing.T) {
	for _, tc := range []struct {
		reason, declared, runs string
		multidoc               bool
	}{
		{"the machine runs what is declared", "v1.13.9", "v1.13.2", true},
		{"the machine still runs an older one, which refuses newer fields", "v1.13.9", "v1.11.5", false},
		{"the machine runs a newer one, and is to go back", "v1.11.5", "v1.13.9", false},
		{"what the machine runs is not known", "v1.13.9", "", true},
		{"a newer one than this program knows", "v1.14.0", "v1.14.0-rc.1", true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			got := values(t, render(t, func(in *Input) { in.TalosVersion, in.ContractVersion = tc.declared, tc.runs }))
			_, document := got["HostnameConfig.hostname"]
			_, field := got["machine.network.hostname"]
			if document != tc.multidoc || field == tc.multidoc {
				t.Errorf("hostname in a document: %t, in machine.network: %t, want in a document: %t", document, field, tc.multidoc)
			}
		})
	}
}

func TestRenderIsDeterministicAndLoads(t *testing.T) {
	change := func(in *Input) {
		in.NodeLabels = map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}
		in.Patches = patches("machine:\n  sysctls:\n    vm.a: '1'\n    vm.b: '2'\n", `[{"op":"add","path":"/machine/env","value":{"B":"2","A":"1"}}]`)
	}
	first := render(t, change)
	for range 5 {
		if d := cmp.Diff(string(first), string(render(t, change))); d != "" {
			t.Fatal(d)
		}
	}
	data, err := testBundle(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(first), string(render(t, func(in *Input) { change(in); in.Bundle = again }))); d != "" {
		t.Errorf("after the bundle was read back: %s", d)
	}
	if _, err := configloader.NewFromBytes(first); err != nil {
		t.Error(err)
	}
	if bytes.Contains(first, []byte("# ")) {
		t.Error("there are comments")
	}
}

func TestWorkerHasNoSecretOfControlPlanes(t *testing.T) {
	controlPlane, everywhere := testBundle(t).secretValues()
	if len(controlPlane) != 6 || len(everywhere) != 3 {
		t.Fatalf("secrets: %d of control planes, %d of all", len(controlPlane), len(everywhere))
	}
	has := func(data []byte, secret string) bool {
		return bytes.Contains(data, []byte(inBase64([]byte(secret)))) || bytes.Contains(data, []byte(secret))
	}
	cp, w := render(t, nil), render(t, func(in *Input) { in.Role = RoleWorker })
	for i, s := range controlPlane {
		if !has(cp, s) {
			t.Errorf("secret %d is not in the configuration of a control plane", i)
		}
		if has(w, s) {
			t.Errorf("secret %d is in the configuration of a worker", i)
		}
	}
}

func TestOlderEncryptionSecretIsKept(t *testing.T) {
	b := &Bundle{secrets: cloneSecrets(t, testBundle(t))}
	b.secrets.Secrets.AESCBCEncryptionSecret, b.secrets.Secrets.SecretboxEncryptionSecret = "b2xkZXI=", ""
	got := values(t, render(t, func(in *Input) { in.Bundle = b }))
	if got["cluster.aescbcEncryptionSecret"] != "b2xkZXI=" || got["cluster.secretboxEncryptionSecret"] != nil {
		t.Errorf("aescbc %v, secretbox %v", got["cluster.aescbcEncryptionSecret"], got["cluster.secretboxEncryptionSecret"])
	}
}

func TestRenderRefuses(t *testing.T) {
	for _, tc := range []struct {
		reason       string
		change       func(*Input)
		field, value string
	}{
		{"no secrets", func(in *Input) { in.Bundle = nil }, "secrets bundle", ""},
		{"no name", func(in *Input) { in.ClusterName = "" }, "cluster name", ""},
		{"an endpoint without a port", func(in *Input) { in.Endpoint = "https://192.0.2.10" }, "endpoint", "https://192.0.2.10"},
		{"an endpoint without TLS", func(in *Input) { in.Endpoint = "http://192.0.2.10:6443" }, "endpoint", "http://192.0.2.10:6443"},
		{"an endpoint that is no URL", func(in *Input) { in.Endpoint = "https://%zz:1" }, "endpoint", "https://%zz:1"},
		{"a role that does not exist", func(in *Input) { in.Role = "init" }, "role", "init"},
		{"a hostname with dots", func(in *Input) { in.Hostname = "a.b" }, "hostname", "a.b"},
		{"a hostname that is too long", func(in *Input) { in.Hostname = strings.Repeat("a", 64) }, "hostname", strings.Repeat("a", 64)},
		{"no image", func(in *Input) { in.InstallImage = "" }, "installer image", ""},
		{"no disk", func(in *Input) { in.InstallDisk = "" }, "install.disk", ""},
		{"two disks", func(in *Input) { in.InstallDiskSelector = &DiskSelector{Type: "ssd"} }, "install.disk", "/dev/sda"},
		{"a selector that selects any disk", func(in *Input) { in.InstallDisk, in.InstallDiskSelector = "", &DiskSelector{} }, "install.diskSelector", ""},
		{"a size that is none", func(in *Input) { in.InstallDisk, in.InstallDiskSelector = "", &DiskSelector{Size: "big"} }, "install.diskSelector.size", "big"},
		{"a Talos version that is none", func(in *Input) { in.TalosVersion = "latest" }, "versions.talos", "latest"},
		{"a Talos of another age", func(in *Input) { in.TalosVersion = "v2.0.0" }, "versions.talos", "v2.0.0"},
		{"a running version that is none", func(in *Input) { in.ContractVersion = "x" }, "running version of Talos", "x"},
		{"a Kubernetes version that is none", func(in *Input) { in.KubernetesVersion = "1.35" }, "versions.kubernetes", "1.35"},
		{"pods without a range", func(in *Input) { in.Network.PodCIDRs = []string{"10.0.0.0/8", "10.0.0.1"} }, "network.podCIDRs[1]", "10.0.0.1"},
		{"services in half a range", func(in *Input) { in.Network.ServiceCIDRs = []string{"10.0.0.1/8"} }, "network.serviceCIDRs[0]", "10.0.0.1/8"},
		{"a domain that is none", func(in *Input) { in.Network.DNSDomain = "-" }, "network.dnsDomain", "-"},
		{"a CNI that Talos has not", func(in *Input) { in.Network.CNI = "calico" }, "network.cni", "calico"},
		{"a taint without an effect", func(in *Input) { in.NodeTaints = []Taint{{Key: "a"}} }, "node.taints[0].effect", ""},
		{"a taint without a key", func(in *Input) { in.NodeTaints = []Taint{{Effect: "NoExecute"}} }, "node.taints[0].key", ""},
		{"two taints of a control plane of which one would be lost", func(in *Input) { in.NodeTaints = []Taint{{"a", "", "NoExecute"}, {"a", "", "NoSchedule"}} }, "node.taints[1].key", "a"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			_, err := Render(testInput(t, tc.change))
			var fe *FieldError
			if !errors.As(err, &fe) {
				t.Fatalf("error = %v", err)
			}
			if fe.Field != tc.field || fe.Value != tc.value || fe.Problem == "" {
				t.Errorf("field %q, value %q, problem %q", fe.Field, fe.Value, fe.Problem)
			}
			if want := "cannot use " + tc.field; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("text %q", err)
			}
		})
	}
}

func TestRenderSaysWhatTalosWouldSay(t *testing.T) {
	_, err := Render(testInput(t, func(in *Input) { in.NodeLabels = map[string]string{"not a label": "x"} }))
	if err == nil || !strings.Contains(err.Error(), "not a label") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error = %v", err)
	}
}

func TestInstallImage(t *testing.T) {
	for _, tc := range []struct{ reason, version, schematic, factory, image, want string }{
		{"the official one", "v1.13.9", "", "", "", "ghcr.io/siderolabs/installer:v1.13.9"},
		{"a factory without a schematic has nothing to make", "v1.13.9", "", "f.example", "", "ghcr.io/siderolabs/installer:v1.13.9"},
		{"a schematic of the official factory", "v1.13.9", "abc", "", "", "factory.talos.dev/metal-installer/abc:v1.13.9"},
		{"a schematic of a factory", "v1.12.0", "abc", "f.example", "", "f.example/metal-installer/abc:v1.12.0"},
		{"factories had another name for it before 1.10", "v1.9.5", "abc", "f.example", "", "f.example/installer/abc:v1.9.5"},
		{"a whole reference", "v1.13.9", "abc", "f.example", "i.example/x:y", "i.example/x:y"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if got := InstallImage(tc.version, tc.schematic, tc.factory, tc.image); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
