package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// An EtcdClient says how an API server reaches its etcd.
type EtcdClient struct {
	// Endpoints are etcd client URLs.
	Endpoints []string

	// CA and Pair are for https endpoints; empty for http.
	CA   []byte
	Pair KeyPair
}

// APIServerOptions say how to run kube-apiserver.
type APIServerOptions struct {
	// Binary is the path of kube-apiserver.
	Binary string

	// Dir keeps its certificates and its log.
	Dir string

	// Bind is the loopback address and port that it serves https on.
	Bind netip.AddrPort

	PKI  PKI
	Etcd EtcdClient

	// ServiceCIDRs are the ranges of Service addresses. Empty means 10.96.0.0/16.
	ServiceCIDRs []string

	// Names and IP addresses that the server's certificate is also valid for, beside the usual ones.
	Names []string

	// ServiceAccounts says that a controller makes service accounts. Otherwise pods are admitted without one.
	ServiceAccounts bool

	// Args are more flags; they win over those chosen here.
	Args []string
}

// APIServer is a running kube-apiserver.
type APIServer struct {
	*Process

	config *rest.Config
}

// StartAPIServer starts kube-apiserver and waits until it says that it is ready.
func StartAPIServer(ctx context.Context, o APIServerOptions) (*APIServer, error) {
	if err := onlyLoopback(o.Bind); err != nil {
		return nil, fmt.Errorf("cannot start kube-apiserver: %w", err)
	}
	if len(o.ServiceCIDRs) == 0 {
		o.ServiceCIDRs = []string{"10.96.0.0/16"}
	}
	files, err := o.writePKI()
	if err != nil {
		return nil, fmt.Errorf("cannot start kube-apiserver: %w", err)
	}
	config, err := AdminConfig(o.PKI, o.Bind)
	if err != nil {
		return nil, fmt.Errorf("cannot start kube-apiserver: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for kube-apiserver: %w", err)
	}
	defer client.CloseIdleConnections()

	p, err := StartProcess(Command{
		Name: "kube-apiserver",
		Path: o.Binary,
		Log:  filepath.Join(o.Dir, "kube-apiserver.log"),
		Args: append(o.flags(files), o.Args...),
	})
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, func(ctx context.Context) error { return getOK(ctx, client, config.Host+"/readyz") }); err != nil {
		return nil, abandon(p, err)
	}
	return &APIServer{Process: p, config: config}, nil
}

// flags are those of a small API server that only its own machine can reach.
func (o APIServerOptions) flags(files map[string]string) []string {
	flags := []string{
		"--bind-address=" + o.Bind.Addr().String(),
		fmt.Sprintf("--secure-port=%d", o.Bind.Port()),
		"--advertise-address=" + o.Bind.Addr().String(),
		// Endpoints may not hold loopback addresses, so this server cannot list itself as one.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + strings.Join(o.ServiceCIDRs, ","),
		"--authorization-mode=RBAC",
		"--allow-privileged=true",
		"--client-ca-file=" + files["ca.crt"],
		"--tls-cert-file=" + files["server.crt"],
		"--tls-private-key-file=" + files["server.key"],
		"--requestheader-client-ca-file=" + files["front-proxy-ca.crt"],
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + files["front-proxy-client.crt"],
		"--proxy-client-key-file=" + files["front-proxy-client.key"],
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + files["service-account.pub"],
		"--service-account-signing-key-file=" + files["service-account.key"],
		"--etcd-servers=" + strings.Join(o.Etcd.Endpoints, ","),
		// With few users on few cores, fairness between them costs more than it gives.
		"--enable-priority-and-fairness=false",
		"--profiling=false",
	}
	if len(o.Etcd.CA) > 0 {
		flags = append(flags,
			"--etcd-cafile="+files["etcd-ca.crt"], "--etcd-certfile="+files["etcd-client.crt"], "--etcd-keyfile="+files["etcd-client.key"])
	}
	if !o.ServiceAccounts {
		flags = append(flags, "--disable-admission-plugins=ServiceAccount")
	}
	return flags
}

// writePKI issues the server's certificates and writes all that the flags name. The result maps names to paths.
func (o APIServerOptions) writePKI() (map[string]string, error) {
	serviceIP, err := firstServiceIP(o.ServiceCIDRs[0])
	if err != nil {
		return nil, err
	}
	leaf := Leaf{
		CommonName: "kube-apiserver",
		DNSNames:   []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPs:        []net.IP{o.Bind.Addr().AsSlice(), net.IPv4(127, 0, 0, 1), serviceIP},
	}
	for _, name := range o.Names {
		if ip := net.ParseIP(name); ip != nil {
			leaf.IPs = append(leaf.IPs, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	server, err := o.PKI.CA.Issue(leaf)
	if err != nil {
		return nil, err
	}
	proxy, err := o.PKI.FrontProxyCA.Issue(Leaf{CommonName: "front-proxy-client"})
	if err != nil {
		return nil, err
	}
	public, err := publicPEM(o.PKI.ServiceAccountKey)
	if err != nil {
		return nil, fmt.Errorf("cannot read the service account key: %w", err)
	}
	return writeFiles(filepath.Join(o.Dir, "pki"), map[string][]byte{
		"ca.crt":                 o.PKI.CA.Cert,
		"server.crt":             server.Cert,
		"server.key":             server.Key,
		"front-proxy-ca.crt":     o.PKI.FrontProxyCA.Cert,
		"front-proxy-client.crt": proxy.Cert,
		"front-proxy-client.key": proxy.Key,
		"service-account.key":    o.PKI.ServiceAccountKey,
		"service-account.pub":    public,
		"etcd-ca.crt":            o.Etcd.CA,
		"etcd-client.crt":        o.Etcd.Pair.Cert,
		"etcd-client.key":        o.Etcd.Pair.Key,
	})
}

// firstServiceIP is the address that the Service "kubernetes" gets.
func firstServiceIP(cidr string) (net.IP, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return nil, fmt.Errorf("cannot read the service range: %w", err)
	}
	return prefix.Masked().Addr().Next().AsSlice(), nil
}

// writeFiles writes secrets into dir and returns their paths by name.
func writeFiles(dir string, contents map[string][]byte) (map[string]string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make a place for certificates: %w", err)
	}
	paths := make(map[string]string, len(contents))
	for name, content := range contents {
		paths[name] = filepath.Join(dir, name)
		if err := os.WriteFile(paths[name], content, 0o600); err != nil {
			return nil, fmt.Errorf("cannot write a certificate: %w", err)
		}
	}
	return paths, nil
}

// RESTConfig is a client configuration with a certificate of system:masters. Each call returns a copy.
func (s *APIServer) RESTConfig() *rest.Config { return rest.CopyConfig(s.config) }

// AdminConfig makes a client configuration for the API server at an address, with a certificate of system:masters issued by
// pki. The server need not run yet.
func AdminConfig(pki PKI, at netip.AddrPort) (*rest.Config, error) {
	admin, err := pki.CA.Issue(Leaf{CommonName: "admin", Organizations: []string{"system:masters"}})
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            "https://" + at.String(),
		TLSClientConfig: rest.TLSClientConfig{CAData: pki.CA.Cert, CertData: admin.Cert, KeyData: admin.Key},
		// The defaults (5 and 10) throttle tests that talk to their own server.
		QPS:   200,
		Burst: 400,
	}, nil
}

// Kubeconfig writes a client configuration with a certificate as a kubeconfig file's content.
func Kubeconfig(c *rest.Config) ([]byte, error) {
	const name = "lab"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("cannot write a kubeconfig: %w", err)
	}
	return content, nil
}
