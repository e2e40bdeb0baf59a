package controlplane

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// start is Start with this package's binaries; it is stopped with the test.
func start(t *testing.T, o Options) *ControlPlane {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	o.Binaries = binaries
	c, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestStopLeavesNothing(t *testing.T) {
	c := start(t, Options{Controllers: ManagementControllers()})
	kubeconfig, err := c.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	namespaces := client.CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Only the namespace controller takes the finalizer off.
	if err := namespaces.Delete(t.Context(), "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	within(t, "the namespace is gone", func() bool {
		_, err := namespaces.Get(t.Context(), "mine", metav1.GetOptions{})
		return kerrors.IsNotFound(err)
	})

	children := childrenOf(t, os.Getpid())
	if len(children) != 3 {
		t.Errorf("children %v, want etcd, kube-apiserver and kube-controller-manager", children)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range children {
		if exists(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(config.Host, "https://")); err == nil {
		t.Errorf("%s still accepts connections", config.Host)
		_ = conn.Close()
	}
	if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
		t.Errorf("%q is still there (%v)", c.dir, err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("a stopped control plane has the error %v", err)
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err := Start(ctx, Options{Binaries: binaries, APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver ended by itself") || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("got %v", err)
	}
	if children := childrenOf(t, os.Getpid()); len(children) > 0 {
		t.Errorf("processes %v are left", children)
	}
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	at := netip.MustParseAddrPort("0.0.0.0:6443")
	if _, err := StartAPIServer(t.Context(), APIServerOptions{Binary: binaries.APIServer, Dir: t.TempDir(), Bind: at}); err == nil {
		t.Error("kube-apiserver on every address was not refused")
	}
	if _, err := StartEtcd(t.Context(), EtcdOptions{Binary: binaries.Etcd, Dir: t.TempDir(), Client: at, Peer: at}); err == nil {
		t.Error("etcd on every address was not refused")
	}
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.lab.test}
spec:
  group: lab.test
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

const guard = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: guard}
webhooks:
- name: guard.lab.test
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {name: guard, namespace: lab, path: /refuse}}
  rules:
  - {apiGroups: [lab.test], apiVersions: [v1], operations: [DELETE], resources: [widgets]}
`

func TestInstallsCRDsAndWebhooks(t *testing.T) {
	c := start(t, Options{})
	dir := t.TempDir()
	for name, content := range map[string]string{"crd.yaml": "---\n" + widgets, "hooks.yaml": guard, "notes.txt": "not YAML: ["} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server, asked := refuser(t, c.PKI.CA)

	// Installing twice is how an upgrade looks.
	for range 2 {
		if err := InstallCRDs(t.Context(), c.RESTConfig(), dir); err != nil {
			t.Fatal(err)
		}
		if err := InstallValidatingWebhooks(t.Context(), c.RESTConfig(), server, c.PKI.CA.Cert, dir); err != nil {
			t.Fatal(err)
		}
	}

	client, err := dynamic.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	kind := client.Resource(schema.GroupVersionResource{Group: "lab.test", Version: "v1", Resource: "widgets"}).Namespace("default")
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "lab.test/v1", "kind": "Widget", "metadata": map[string]any{"name": "one"},
	}}
	if _, err := kind.Create(t.Context(), widget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A new webhook configuration takes the API server a moment to notice; a dry run asks the webhook and changes nothing.
	within(t, "the webhook refuses", func() bool {
		err = kind.Delete(t.Context(), "one", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
	if !strings.Contains(err.Error(), "not today") {
		t.Errorf("refused with %v", err)
	}
	if path := <-asked; path != "/refuse" {
		t.Errorf("the webhook was asked at %q, want /refuse", path)
	}
}

func TestInstallingNothingIsAnError(t *testing.T) {
	if _, err := readObjects("CustomResourceDefinition", []string{t.TempDir()}); err == nil {
		t.Error("an empty directory was accepted")
	}
	if _, err := readObjects("CustomResourceDefinition", []string{filepath.Join(t.TempDir(), "absent")}); err == nil {
		t.Error("a missing directory was accepted")
	}
}

// refuser serves an admission webhook that refuses everything, and tells the path of the first request.
func refuser(t *testing.T, ca KeyPair) (base string, asked <-chan string) {
	t.Helper()
	pair, err := ca.Issue(Leaf{CommonName: "webhook", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	paths := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case paths <- r.URL.Path:
		default:
		}
		var review struct {
			Request struct {
				UID string `json:"uid"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"`+
			review.Request.UID+`","allowed":false,"status":{"message":"not today"}}}`) // A lost answer fails the test at its other end.
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return "https://" + u.Host, paths
}

// childrenOf lists the living children of a process.
func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	var pids []int
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // It ended since the listing.
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}
