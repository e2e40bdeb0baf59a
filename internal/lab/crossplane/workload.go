package crossplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"path/filepath"
	"time"

	pkgv1 "github.com/crossplane/crossplane/apis/v2/pkg/v1"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/maesh/provider-ichor/internal/lab/controlplane"
)

const (
	// servicePort is where Crossplane expects the webhooks of providers, and the calls that functions take.
	servicePort = 9443

	// stopGrace is what a pod gets by default.
	stopGrace = 30 * time.Second

	// restartDelay is how long a program that ended stays away, as with a kubelet.
	restartDelay = time.Second

	dialTimeout = time.Second
)

// A workload is one revision of a package as it runs here: what would be a Deployment with its pod.
type workload struct {
	// revision and pkg are the names of the objects; repository is what the package is called in its registry. Crossplane
	// names the objects of a package itself if another package brought it.
	revision, pkg, repository string

	address netip.Addr
	command controlplane.Command
	active  bool

	process *controlplane.Process
	started time.Time
}

func (w *workload) serverSecret() string { return w.revision + "-tls-server" }
func (w *workload) clientSecret() string { return w.revision + "-tls-client" }

func (w *workload) endpoint() netip.AddrPort { return netip.AddrPortFrom(w.address, servicePort) }

// prepare gives a revision all that a pod would find: certificates, a Service, an identity, the program and its environment.
func (r *packageRuntime) prepare(ctx context.Context, rev pkgv1.PackageRevisionWithRuntime) (*workload, error) {
	ref, err := name.ParseReference(rev.GetSource())
	if err != nil {
		return nil, fmt.Errorf("cannot read the address of a package: %w", err)
	}
	w := &workload{
		revision: rev.GetName(), pkg: rev.GetLabels()[pkgv1.LabelParentPackage], repository: path.Base(ref.Context().RepositoryStr()),
		address: r.address(),
	}
	dir := filepath.Join(r.o.Dir, w.revision)
	if err := r.certify(ctx, w, dir); err != nil {
		return nil, err
	}
	if err := r.route(ctx, w); err != nil {
		return nil, err
	}
	kubeconfig, err := r.identify(ctx, rev, dir)
	if err != nil {
		return nil, err
	}
	program, args, err := unpack(ctx, ref, filepath.Join(dir, "image"))
	if err != nil {
		return nil, err
	}
	server, clientDir := filepath.Join(dir, "tls-server"), filepath.Join(dir, "tls-client")
	w.command = controlplane.Command{
		Name: w.revision, Path: program, Args: args, Log: filepath.Join(r.o.Dir, w.revision+".log"), Grace: stopGrace,
		Env: []string{
			"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=" + Namespace,
			"REVISION_NAME=" + w.revision, "REVISION_UID=" + string(rev.GetUID()),
			"TLS_SERVER_CERTS_DIR=" + server, "TLS_CLIENT_CERTS_DIR=" + clientDir,
		},
	}
	if _, ok := rev.(*pkgv1.ProviderRevision); ok {
		w.command.Env = append(w.command.Env, "PROVIDER_NAME="+w.pkg, "WEBHOOK_TLS_CERT_DIR="+server)
	}
	if more := r.o.Environment[w.repository]; more != nil {
		w.command.Env = append(w.command.Env, more(w.address)...)
	}
	return w, nil
}

// certify issues a revision's certificates from Crossplane's own authority: as Secrets for core, as files for the program.
func (r *packageRuntime) certify(ctx context.Context, w *workload, dir string) error {
	root := &corev1.Secret{}
	if err := r.kube.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: caSecret}, root); err != nil {
		return fmt.Errorf("cannot get Crossplane's authority: %w", err)
	}
	ca := controlplane.KeyPair{Cert: root.Data[corev1.TLSCertKey], Key: root.Data[corev1.TLSPrivateKeyKey]}
	service := w.pkg + "." + Namespace
	for kind, leaf := range map[string]controlplane.Leaf{
		"tls-server": {CommonName: service, DNSNames: []string{service, service + ".svc"}, IPs: []net.IP{w.address.AsSlice()}},
		"tls-client": {CommonName: service},
	} {
		pair, err := ca.Issue(leaf)
		if err != nil {
			return err
		}
		data := map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key, corev1.ServiceAccountRootCAKey: ca.Cert}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: w.revision + "-" + kind}, Type: corev1.SecretTypeOpaque, Data: data}
		if err := createOrUpdate(ctx, r.kube, secret); err != nil {
			return err
		}
		if err := writeFiles(filepath.Join(dir, kind), data); err != nil {
			return err
		}
	}
	return nil
}

// route leads the package's Service to this revision.
func (r *packageRuntime) route(ctx context.Context, w *workload) error {
	return createOrUpdate(ctx, r.kube, loopbackService(w.pkg, w.address.String()))
}

// createOrUpdate writes an object whatever was there before.
func createOrUpdate(ctx context.Context, kube client.Client, o client.Object) error {
	err := kube.Create(ctx, o)
	if kerrors.IsAlreadyExists(err) {
		err = kube.Update(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("cannot write %T %q: %w", o, o.GetName(), err)
	}
	return nil
}

// ensureProcess starts the program unless it runs, or ended a moment ago.
func (w *workload) ensureProcess() error {
	if w.process != nil {
		select {
		case <-w.process.Died():
		default:
			return nil
		}
		if time.Since(w.started) < restartDelay {
			return nil
		}
	}
	p, err := controlplane.StartProcess(w.command)
	if err != nil {
		return err
	}
	w.process, w.started = p, time.Now()
	return nil
}

// serves is nil if the program takes connections where it should.
func (w *workload) serves(ctx context.Context) error {
	select {
	case <-w.process.Died():
		return errors.New("the program has ended and is started again")
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.endpoint().String())
	if err != nil {
		return errors.New("nothing answers at " + w.endpoint().String() + " yet")
	}
	return c.Close()
}

func (w *workload) stop() error {
	if w.process == nil {
		return nil
	}
	return w.process.Stop()
}
