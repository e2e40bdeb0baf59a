package machineconfig

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

// secretPlaces puts the text SESAME wherever the machinery knows of a secret, and wherever users are known to put some.
const secretPlaces = `
machine:
  env: {HTTPS_PROXY: "http://user:SESAME-01@proxy.example", PLAIN: SESAME-02}
  files: [{path: /var/a, op: create, permissions: 0o600, content: SESAME-03}]
  install: {extraKernelArgs: [a=SESAME-04]}
  registries:
    mirrors: {r.example: {endpoints: ["https://user:SESAME-05@m.example", "https://m.example/?token=SESAME-06"]}}
    config:
      r.example:
        auth: {username: u, password: SESAME-07, auth: SESAME-08, identityToken: SESAME-09}
        tls: {clientIdentity: {crt: "", key: BASE64(SESAME-10)}}
  network:
    interfaces:
    - interface: wg0
      wireguard: {privateKey: SESAME-11, peers: []}
      vip: {ip: 192.0.2.1, equinixMetal: {apiToken: SESAME-12}, hcloud: {apiToken: SESAME-13}}
      vlans: [{vlanId: 1, vip: {ip: 192.0.2.2, hcloud: {apiToken: SESAME-14}}}]
  systemDiskEncryption:
    state: {provider: luks2, keys: [{slot: 0, static: {passphrase: SESAME-15}}]}
    ephemeral: {provider: luks2, keys: [{slot: 0, static: {passphrase: SESAME-16}}]}
  kubelet:
    extraArgs: {token-thing: SESAME-17}
    extraConfig: {staticPodURLHeader: {Authorization: [SESAME-18]}}
    credentialProviderConfig: {providers: [{env: [{name: K, value: SESAME-19}]}]}
  pods: [{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, env: [{name: K, value: SESAME-20}]}]}}]
  kernel: {modules: [{name: m, parameters: [key=SESAME-21]}]}
  logging: {destinations: [{endpoint: "tcp://user:SESAME-22@log.example:1", format: json_lines, extraTags: {apikey: SESAME-23}}]}
  nodeAnnotations: {copied: SESAME-02, key.pem: "-----BEGIN EC PRIVATE KEY----- SESAME-24"}
  sysctls: {copied: before SESAME-07 after}
cluster:
  apiServer:
    env: {K: SESAME-25}
    extraArgs: {k: SESAME-26}
    admissionControl: [{name: X, configuration: {k: SESAME-27}}]
  controllerManager: {env: {K: SESAME-28}}
  scheduler: {env: {K: SESAME-29}, config: {k: SESAME-30}}
  etcd: {extraArgs: {k: SESAME-31}}
  inlineManifests: [{name: s, contents: "apiVersion: v1\nkind: Secret\nstringData: {a: SESAME-32}\n"}]
  extraManifests: ["https://user:SESAME-33@git.example/a", "https://git.example/a?token=SESAME-34"]
  extraManifestHeaders: {Authorization: SESAME-35}
  externalCloudProvider: {enabled: true, manifests: ["https://user:SESAME-36@git.example/b"]}
  discovery: {enabled: true, registries: {service: {endpoint: "https://user:SESAME-37@discovery.example/"}}}
---
apiVersion: v1alpha1
kind: SideroLinkConfig
apiUrl: grpc://192.0.2.1:1?jointoken=SESAME-38
uniqueToken: SESAME-39
---
apiVersion: v1alpha1
kind: ExtensionServiceConfig
name: x
environment: [A=SESAME-40]
configFiles: [{content: SESAME-41, mountPath: /a}]
---
apiVersion: v1alpha1
kind: VolumeConfig
name: EPHEMERAL
encryption: {provider: luks2, keys: [{slot: 0, static: {passphrase: SESAME-42}}]}
---
apiVersion: v1alpha1
kind: UserVolumeConfig
name: data
provisioning: {minSize: 1GB}
encryption: {provider: luks2, keys: [{slot: 0, static: {passphrase: SESAME-43}}]}
---
apiVersion: v1alpha1
kind: RegistryAuthConfig
name: r.example
username: u
password: SESAME-44
---
apiVersion: v1alpha1
kind: HCloudVIPConfig
name: 192.0.2.3
link: eth0
apiToken: SESAME-45
---
apiVersion: v1alpha1
kind: WireguardConfig
name: wg1
privateKey: SESAME-46
peers: [{publicKey: p, presharedKey: SESAME-47, allowedIPs: [192.0.2.0/24]}]
---
apiVersion: v1alpha1
kind: KmsgLogConfig
name: remote
url: tcp://user:SESAME-48@log.example:1
---
apiVersion: v1alpha1
kind: EnvironmentConfig
variables: {K: SESAME-49}
`

func fill(places, secret string) []byte {
	s := strings.ReplaceAll(places, "SESAME", secret)
	for {
		before, rest, ok := strings.Cut(s, "BASE64(")
		if !ok {
			return []byte(s)
		}
		text, after, _ := strings.Cut(rest, ")")
		s = before + base64.StdEncoding.EncodeToString([]byte(text)) + after
	}
}

// exposed returns which of the secrets, or their encodings, are in a text.
func exposed(s string, secrets ...string) (found []string) {
	for _, secret := range secrets {
		for _, form := range []string{secret, inBase64([]byte(secret)), strings.TrimSpace(secret)} {
			if strings.Contains(s, form) {
				found = append(found, form)
			}
		}
		for line := range strings.Lines(secret) {
			if line = strings.TrimSpace(line); len(line) > 20 && !strings.HasPrefix(line, "-----") && strings.Contains(s, line) {
				found = append(found, line)
			}
		}
	}
	return found
}

// wholeDiff is Compare's diff without its bounds.
func wholeDiff(t *testing.T, desired, actual []byte) string {
	t.Helper()
	known := normalize(&desired, &actual)
	want, err := parse(desired)
	if err != nil {
		t.Fatal(err)
	}
	have, err := parse(actual)
	if err != nil {
		t.Fatal(err)
	}
	d := diff{known: known, secrets: secretsIn(bodies(want), bodies(have))}
	var lines []string
	differences(bodies(have), bodies(want), nil, func(at path, a, b any) { lines = append(lines, d.line(at, a, b)) })
	return strings.Join(lines, "\n")
}

func TestDiffShowsNoSecretOfTheBundle(t *testing.T) {
	other, err := NewBundle("v1.13.9")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, b := range []*Bundle{testBundle(t), other} {
		controlPlane, everywhere := b.secretValues()
		all = append(append(all, controlPlane...), everywhere...)
	}
	mine, theirs, empty := render(t, nil), render(t, func(in *Input) { in.Bundle = other }), []byte("version: v1alpha1\nmachine: {type: controlplane}\ncluster: null\n")
	for reason, pair := range map[string][2][]byte{"changed": {mine, theirs}, "added": {mine, empty}, "removed": {empty, mine}, "of an unknown Talos": {append(mine, "---\napiVersion: v9\nkind: Future\n"...), theirs}} {
		s := wholeDiff(t, pair[0], pair[1])
		if found := exposed(s, all...); len(found) > 0 {
			t.Errorf("%s: %d secrets are shown, such as %q", reason, len(found), found[0])
		}
		if got := compare(t, pair[0], pair[1]).Diff; len(exposed(got, all...)) > 0 {
			t.Errorf("%s: the bounded diff shows secrets", reason)
		}
		if strings.Count(s, "\n") < 10 || !strings.Contains(s, "machine.token: ") || !strings.Contains(s, "cluster.ca.key: ") {
			t.Errorf("%s: the diff shows too little to test anything:\n%s", reason, s)
		}
	}
}

func TestDiffShowsNoSecretOfPatches(t *testing.T) {
	old, now := fill(secretPlaces, "old-sesame"), fill(secretPlaces, "new-sesame")
	if _, err := configloader.NewFromBytes(now); err != nil {
		t.Fatalf("the places are not those of this Talos: %v", err)
	}
	for reason, pair := range map[string][2][]byte{"changed": {now, old}, "added": {now, []byte("machine: {type: worker}\n")}, "removed": {[]byte("machine: {type: worker}\n"), old}} {
		s := wholeDiff(t, pair[0], pair[1])
		for line := range strings.Lines(s) {
			if strings.Contains(line, "sesame") || strings.Contains(line, inBase64([]byte("new-sesame"))[:8]) || strings.Contains(line, inBase64([]byte("old-sesame"))[:8]) {
				t.Errorf("%s: %s", reason, line)
			}
		}
		if strings.Count(s, "\n") < 48 {
			t.Errorf("%s: only %d lines", reason, strings.Count(s, "\n"))
		}
	}
}

// What the machinery itself takes for a secret must be one here, in every document.
func TestMachineryKnowsNoFurtherSecret(t *testing.T) {
	for _, data := range [][]byte{fill(secretPlaces, "new-sesame"), render(t, nil), render(t, func(in *Input) { in.Role = RoleWorker })} {
		loaded, err := configloader.NewFromBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := encode(loaded.Clone())
		if err != nil {
			t.Fatal(err)
		}
		redacted, err := encode(loaded.RedactSecrets("REDACTED"))
		if err != nil {
			t.Fatal(err)
		}
		a, err := parse(whole)
		if err != nil {
			t.Fatal(err)
		}
		b, err := parse(redacted)
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		differences(bodies(a), bodies(b), nil, func(at path, v, _ any) {
			count++
			if !isSecret(at, v) {
				t.Errorf("%s is a secret to Talos and not here", at)
			}
		})
		if count < 3 {
			t.Errorf("the machinery redacted %d values", count)
		}
	}
}

func TestHarmlessValuesAreShown(t *testing.T) {
	s := wholeDiff(t, []byte("machine: {type: worker, sysctls: {vm.x: '1'}, nodeLabels: {rack: '7'}, time: {servers: [ntp.example]}, kubelet: {image: k.example/kubelet:v1}}\ncluster: {network: {podSubnets: [192.0.2.0/24]}}\n"), []byte("machine: {type: worker}\n"))
	for _, want := range []string{`"1"`, `"7"`, `"ntp.example"`, `"k.example/kubelet:v1"`, `"192.0.2.0/24"`} {
		if !strings.Contains(s, want) {
			t.Errorf("%s is not shown in\n%s", want, s)
		}
	}
}
