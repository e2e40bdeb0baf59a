package webhook

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/apis/v1alpha1"
)

func TestClusterRules(t *testing.T) {
	endpoint := func(e string) func(*v1alpha1.TalosCluster) {
		return func(c *v1alpha1.TalosCluster) { c.Spec.ForProvider.Endpoint = e }
	}
	count := func(n int) func(*v1alpha1.TalosCluster) {
		return func(c *v1alpha1.TalosCluster) { c.Spec.ForProvider.ControlPlane.Count = n }
	}
	const field, accepted = "spec.forProvider.endpoint", "must be an https URL with host and port, such as https://192.0.2.10:6443"
	const countField = "spec.forProvider.controlPlane.count"
	cases := map[string]struct {
		change  func(*v1alpha1.TalosCluster)
		refusal []string // none: admitted
	}{
		"Endpoint":         {change: endpoint("https://[2001:db8::10]:6443")},
		"EndpointNoURL":    {change: endpoint("192.0.2.10"), refusal: []string{field, "192.0.2.10", accepted}},
		"EndpointHTTP":     {change: endpoint("http://192.0.2.10:6443"), refusal: []string{field, "http://192.0.2.10:6443", accepted}},
		"EndpointNoPort":   {change: endpoint("https://192.0.2.10"), refusal: []string{field, "https://192.0.2.10 ", accepted}},
		"EndpointNoHost":   {change: endpoint("https://:6443"), refusal: []string{field, "https://:6443", accepted}},
		"EndpointNothing":  {change: endpoint(""), refusal: []string{field, accepted}},
		"Count1":           {change: count(1)},
		"Count3":           {change: count(3)},
		"Count5":           {change: count(5)},
		"Count0":           {change: count(0), refusal: []string{countField, "0", `"1", "3", "5"`}},
		"Count2":           {change: count(2), refusal: []string{countField, "2", `"1", "3", "5"`}},
		"Count4":           {change: count(4), refusal: []string{countField, "4", `"1", "3", "5"`}},
		"NameOfFifty":      {change: func(c *v1alpha1.TalosCluster) { c.Name = strings.Repeat("a", 50) }},
		"NameOfMoreThan50": {change: func(c *v1alpha1.TalosCluster) { c.Name = strings.Repeat("a", 51) }, refusal: []string{"metadata.name", "at most 50"}},
	}
	ns := newNamespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(ns, strings.ToLower(name), 3, tc.change)
			expectRules(t, api.Create(t.Context(), c), tc.refusal)
		})
	}
}

func TestMachineRules(t *testing.T) {
	address := func(a string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Address = a }
	}
	install := func(i v1alpha1.MachineInstall) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Install = i }
	}
	const field, accepted = "spec.forProvider.address", "such as 192.0.2.11"
	const exactlyOne = "exactly one of spec.forProvider.install.disk and spec.forProvider.install.diskSelector must be set"
	selector := &v1alpha1.DiskSelector{Size: ">= 100GB"}
	cases := map[string]struct {
		change  func(*v1alpha1.TalosMachine)
		refusal []string // none: admitted
	}{
		"Disk":             {change: install(v1alpha1.MachineInstall{Disk: "/dev/vda"})},
		"DiskSelector":     {change: install(v1alpha1.MachineInstall{DiskSelector: selector})},
		"BothDisks":        {change: install(v1alpha1.MachineInstall{Disk: "/dev/vda", DiskSelector: selector}), refusal: []string{exactlyOne, "disk /dev/vda and a diskSelector are"}},
		"NeitherDisk":      {change: install(v1alpha1.MachineInstall{}), refusal: []string{exactlyOne, "neither is"}},
		"DiskNoDevice":     {change: install(v1alpha1.MachineInstall{Disk: "sda"}), refusal: []string{"spec.forProvider.install.disk", `"sda"`, "^/dev/"}},
		"Role":             {change: func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.Role = "master" }, refusal: []string{"spec.forProvider.role", `"master"`, `"controlplane", "worker"`}},
		"NoCluster":        {change: func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.ClusterRef = nil }, refusal: []string{"spec.forProvider.clusterRef", "spec.forProvider.clusterSelector"}},
		"UUIDMalformed":    {change: func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID = "4c4c" }, refusal: []string{"spec.forProvider.uuid", `"4c4c"`, "[0-9a-fA-F]{8}"}},
		"AddressName":      {change: address("cp-1.example.org")},
		"AddressWithPort":  {change: address("192.0.2.200:50001")},
		"AddressV6":        {change: address("2001:db8::200")},
		"AddressV6Port":    {change: address("[2001:db8::201]:50000")},
		"AddressURL":       {change: address("https://192.0.2.201"), refusal: []string{field, `"https://192.0.2.201"`, accepted}},
		"AddressPort":      {change: address("192.0.2.201:talos"), refusal: []string{field, `"192.0.2.201:talos"`, accepted}},
		"AddressPortRange": {change: address("192.0.2.201:70000"), refusal: []string{field, `"192.0.2.201:70000"`, `"70000"`, accepted}},
		"AddressPortZero":  {change: address("192.0.2.201:0"), refusal: []string{field, `"0"`, accepted}},
		"AddressPortLast":  {change: address("192.0.2.202:65535")},
		"AddressPortAfter": {change: address("192.0.2.201:65536"), refusal: []string{field, `"65536"`, accepted}},
		"AddressColons":    {change: address("1:2:3"), refusal: []string{field, `"1:2:3"`, accepted}},
		"AddressNoHost":    {change: address(":50000"), refusal: []string{field, `":50000"`, accepted}},
	}
	ns := newNamespace(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(ns, strings.ToLower(name), tc.change)
			expectRules(t, api.Create(t.Context(), m), tc.refusal)
		})
	}
}

func TestDuplicates(t *testing.T) {
	ns, elsewhere := newNamespace(t), newNamespace(t)
	const uuid = "4c4c4544-0044-4a10-8030-b9c04f303733"
	first := newMachine(ns, "first", func(m *v1alpha1.TalosMachine) { m.Spec.ForProvider.UUID = uuid })
	create(t, first)
	address := first.Spec.ForProvider.Address
	same := func(change func(*v1alpha1.TalosMachineParameters)) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) { change(&m.Spec.ForProvider) }
	}
	cases := map[string]struct {
		namespace string
		change    func(*v1alpha1.TalosMachineParameters)
		refusal   []string
	}{
		"Address":          {namespace: ns, change: func(p *v1alpha1.TalosMachineParameters) { p.Address = address }, refusal: []string{"spec.forProvider.address", address}},
		"AddressElsewhere": {namespace: elsewhere, change: func(p *v1alpha1.TalosMachineParameters) { p.Address = address }, refusal: []string{"spec.forProvider.address", address}},
		"AddressWithPort":  {namespace: ns, change: func(p *v1alpha1.TalosMachineParameters) { p.Address = address + ":50000" }, refusal: []string{"spec.forProvider.address", address}},
		"UUID":             {namespace: ns, change: func(p *v1alpha1.TalosMachineParameters) { p.UUID = uuid }, refusal: []string{"spec.forProvider.uuid", uuid}},
		"UUIDUpperCase":    {namespace: elsewhere, change: func(p *v1alpha1.TalosMachineParameters) { p.UUID = strings.ToUpper(uuid) }, refusal: []string{"spec.forProvider.uuid", strings.ToUpper(uuid)}},
		"OtherPort":        {namespace: ns, change: func(p *v1alpha1.TalosMachineParameters) { p.Address = address + ":50001" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			says := tc.refusal
			if says != nil {
				says = append(says, ns+"/first", "a machine must be declared once")
			}
			m := newMachine(tc.namespace, "create-"+strings.ToLower(name), same(tc.change))
			expectRules(t, api.Create(t.Context(), m), says)

			m = newMachine(tc.namespace, "update-"+strings.ToLower(name))
			create(t, m)
			tc.change(&m.Spec.ForProvider)
			if tc.refusal == nil {
				return // The machine just created has the address now.
			}
			expectRules(t, api.Update(t.Context(), m), says)
		})
	}
	t.Run("OfADeletingMachine", func(t *testing.T) {
		m := newMachine(ns, "leaving", leftAlone, kept)
		create(t, m)
		expectAdmitted(t, api.Delete(t.Context(), m))
		expectGone(t, m)
		m.Spec.ForProvider.Address = address
		expectAdmitted(t, api.Update(t.Context(), m)) // It is on its way out: to refuse could only hold it up.
		m.SetFinalizers(nil)
		expectAdmitted(t, api.Update(t.Context(), m))
	})
	t.Run("AnythingElseOfItself", func(t *testing.T) {
		first.Spec.ForProvider.Hostname = "other"
		expectAdmitted(t, api.Update(t.Context(), first))
	})
}

func TestImmutable(t *testing.T) {
	ns := newNamespace(t)
	bundle := func(name string) func(*v1alpha1.TalosCluster) {
		return func(c *v1alpha1.TalosCluster) {
			c.Spec.ForProvider.SecretsRef = &v1alpha1.SecretsBundleReference{Name: name}
		}
	}
	network := func(c *v1alpha1.TalosCluster) {
		c.Spec.ForProvider.Network = &v1alpha1.ClusterNetwork{DNSDomain: "cluster.local"}
	}
	cluster := func(o client.Object) *v1alpha1.TalosClusterParameters {
		return &o.(*v1alpha1.TalosCluster).Spec.ForProvider
	}
	machine := func(o client.Object) *v1alpha1.TalosMachineParameters {
		return &o.(*v1alpha1.TalosMachine).Spec.ForProvider
	}
	cases := map[string]struct {
		object  client.Object
		change  func(client.Object)
		refusal []string // none: admitted
	}{
		"SecretsRefAppears": {
			object:  newCluster(ns, "appears", 3),
			change:  func(o client.Object) { cluster(o).SecretsRef = &v1alpha1.SecretsBundleReference{Name: "new-pki"} },
			refusal: []string{"spec.forProvider.secretsRef is immutable", "cannot become new-pki/secrets.yaml", "create another TalosCluster"},
		},
		"SecretsRefVanishes": {
			object:  newCluster(ns, "vanishes", 3, bundle("old-pki")),
			change:  func(o client.Object) { cluster(o).SecretsRef = nil },
			refusal: []string{"spec.forProvider.secretsRef is immutable", "cannot become unset", "create another TalosCluster"},
		},
		"SecretsRefChanges": {
			object:  newCluster(ns, "changes", 3, bundle("old-pki")),
			change:  func(o client.Object) { cluster(o).SecretsRef.Name = "new-pki" },
			refusal: []string{"spec.forProvider.secretsRef is immutable", "cannot become new-pki/secrets.yaml", "create another TalosCluster"},
		},
		"SecretsRefStays": {
			object: newCluster(ns, "stays", 3, bundle("old-pki")),
			change: func(o client.Object) { cluster(o).ControlPlane.Count = 5 },
		},
		"NetworkVanishes": {
			object:  newCluster(ns, "network-vanishes", 3, network),
			change:  func(o client.Object) { cluster(o).Network = nil },
			refusal: []string{"spec.forProvider.network is immutable"},
		},
		"NetworkChanges": {
			object:  newCluster(ns, "network-changes", 3, network),
			change:  func(o client.Object) { cluster(o).Network.DNSDomain = "other.local" },
			refusal: []string{"spec.forProvider.network is immutable"},
		},
		"NetworkStays": {
			object: newCluster(ns, "network-stays", 3, network),
			change: func(o client.Object) { cluster(o).ControlPlane.Count = 5 },
		},
		"RoleChanges": {
			object:  newMachine(ns, "role"),
			change:  func(o client.Object) { machine(o).Role = v1alpha1.RoleWorker },
			refusal: []string{"spec.forProvider.role", `"worker"`, "is immutable", "declare it anew"},
		},
		"ApprovedTakenBack": {
			object:  newMachine(ns, "taken-back"),
			change:  func(o client.Object) { machine(o).Approved = false },
			refusal: []string{"spec.forProvider.approved cannot be taken back to false", "delete the TalosMachine"},
		},
		"ApprovedGiven": {
			object: newMachine(ns, "given", unapproved),
			change: func(o client.Object) { machine(o).Approved = true },
		},
		"ClusterRefChanges": {
			object:  newMachine(ns, "moved"),
			change:  func(o client.Object) { machine(o).ClusterRef.Name = "staging" },
			refusal: []string{"spec.forProvider.clusterRef is immutable", "staging", "declare it anew"},
		},
		"ClusterRefResolves": {
			object: newMachine(ns, "resolves", unresolved),
			change: func(o client.Object) { machine(o).ClusterRef = &v1alpha1.ClusterReference{Name: "prod"} },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			create(t, tc.object)
			tc.change(tc.object)
			expectRules(t, api.Update(t.Context(), tc.object), tc.refusal)
		})
	}
}

func expectRules(t *testing.T, err error, refusal []string) {
	t.Helper()
	if refusal == nil {
		expectAdmitted(t, err)
		return
	}
	expectRefusal(t, err, refusal...)
}
