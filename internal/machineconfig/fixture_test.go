package machineconfig

import (
	"sync"
	"testing"
)

// testSecrets are made once: a service account key takes a second or more.
var testSecrets = sync.OnceValues(func() (*Bundle, error) { return NewBundle("v1.13.9") })

func testBundle(t *testing.T) *Bundle {
	t.Helper()
	b, err := testSecrets()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// testInput is a control plane. Changes are made by fn.
func testInput(t *testing.T, fn func(*Input)) Input {
	t.Helper()
	in := Input{
		Bundle:            testBundle(t),
		ClusterName:       "one",
		Endpoint:          "https://192.0.2.10:6443",
		KubernetesVersion: "v1.35.4",
		TalosVersion:      "v1.13.9",
		ContractVersion:   "v1.13.9",
		Role:              RoleControlPlane,
		Hostname:          "cp-1",
		InstallDisk:       "/dev/sda",
		InstallImage:      "installer.example.org/talos:v1.13.9",
	}
	if fn != nil {
		fn(&in)
	}
	return in
}

func render(t *testing.T, fn func(*Input)) []byte {
	t.Helper()
	data, err := Render(testInput(t, fn))
	if err != nil {
		t.Fatalf("Render: %v", err)
	}
	return data
}

func patches(all ...string) []Patch {
	ps := make([]Patch, 0, len(all))
	for _, p := range all {
		ps = append(ps, Patch{Name: "configPatches[" + string(rune('0'+len(ps))) + "]", Data: []byte(p)})
	}
	return ps
}
