package controlplane

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
)

// ManagementControllers are what objects need in a cluster without nodes: garbage collection (owner references, foreground
// deletion), namespaces that end, and roles that aggregate.
func ManagementControllers() []string {
	return []string{"garbage-collector-controller", "namespace-controller", "clusterrole-aggregation-controller"}
}

// ControllerManagerOptions say how to run kube-controller-manager.
type ControllerManagerOptions struct {
	// Binary is the path of kube-controller-manager.
	Binary string

	// Dir keeps its kubeconfig and its log.
	Dir string

	// Config is how it reaches the API server.
	Config *rest.Config

	// Controllers are the names of those to run, such as "garbage-collector-controller".
	Controllers []string

	// PKI has the service account key and the CA that is published to pods.
	PKI PKI

	// Args are more flags; they win over those chosen here.
	Args []string
}

// StartControllerManager starts kube-controller-manager. It returns at once: controllers are ready when they have acted.
func StartControllerManager(o ControllerManagerOptions) (*Process, error) {
	kubeconfig, err := Kubeconfig(o.Config)
	if err != nil {
		return nil, err
	}
	files, err := writeFiles(filepath.Join(o.Dir, "controller-manager"), map[string][]byte{
		"kubeconfig":          kubeconfig,
		"ca.crt":              o.PKI.CA.Cert,
		"service-account.key": o.PKI.ServiceAccountKey,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start kube-controller-manager: %w", err)
	}
	return StartProcess(Command{
		Name: "kube-controller-manager",
		Path: o.Binary,
		Log:  filepath.Join(o.Dir, "kube-controller-manager.log"),
		Args: append([]string{
			"--kubeconfig=" + files["kubeconfig"],
			"--controllers=" + strings.Join(o.Controllers, ","),
			"--service-account-private-key-file=" + files["service-account.key"],
			"--root-ca-file=" + files["ca.crt"],
			"--leader-elect=false",
			"--secure-port=0", // One port less to find; nobody scrapes it.
			"--kube-api-qps=200",
			"--kube-api-burst=400",
		}, o.Args...),
	})
}

// SchedulerOptions say how to run kube-scheduler.
type SchedulerOptions struct {
	// Binary is the path of kube-scheduler.
	Binary string

	// Dir keeps its kubeconfig and its log.
	Dir string

	// Config is how it reaches the API server.
	Config *rest.Config
}

// StartScheduler starts kube-scheduler. It returns at once.
func StartScheduler(o SchedulerOptions) (*Process, error) {
	kubeconfig, err := Kubeconfig(o.Config)
	if err != nil {
		return nil, err
	}
	files, err := writeFiles(filepath.Join(o.Dir, "scheduler"), map[string][]byte{"kubeconfig": kubeconfig})
	if err != nil {
		return nil, fmt.Errorf("cannot start kube-scheduler: %w", err)
	}
	return StartProcess(Command{
		Name: "kube-scheduler",
		Path: o.Binary,
		Log:  filepath.Join(o.Dir, "kube-scheduler.log"),
		Args: []string{"--kubeconfig=" + files["kubeconfig"], "--leader-elect=false", "--secure-port=0"},
	})
}
