package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Options are the options of s3. Each empty field is taken from the environment.
type S3Options struct {
	// Endpoint is the address of the service, such as https://minio.example. Empty:
	// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or that of AWS.
	Endpoint string
	// Region is that of the buckets. Empty: AWS_REGION, AWS_DEFAULT_REGION, or what AWS says of
	// each bucket; of another endpoint us-east-1.
	Region string
	// Credentials sign the requests. nil: those of the environment, of the files of AWS, or of the
	// machine's role.
	Credentials *credentials.Credentials
	// Transport makes the requests. nil: that of minio-go.
	Transport http.RoundTripper
}

const awsEndpoint = "https://s3.amazonaws.com"

// s3Retries is how often a request is tried. A caller may try a transient failure again.
const s3Retries = 3

// s3Store has the objects of buckets: s3://bucket/key.
type s3Store struct{ client *minio.Core }

func newS3(o S3Options) (*s3Store, error) {
	endpoint := cmp.Or(o.Endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), awsEndpoint)
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("blob: s3: the endpoint is no address: write it as https://host or http://host:port")
	}
	opts := &minio.Options{
		Secure: u.Scheme == "https", Creds: o.Credentials, MaxRetries: s3Retries, Transport: o.Transport,
		Region: cmp.Or(o.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
	}
	if endpoint != awsEndpoint {
		opts.BucketLookup = minio.BucketLookupPath
		opts.Region = cmp.Or(opts.Region, "us-east-1")
	}
	if opts.Creds == nil {
		opts.Creds = credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		})
	}
	client, err := minio.NewCore(u.Host, opts)
	if err != nil {
		return nil, fmt.Errorf("blob: s3: %w", err)
	}
	return &s3Store{client}, nil
}

func s3Object(op, uri string) (bucket, key string, err error) {
	u, why := parse(uri)
	if why != "" {
		return "", "", invalid(op, uri, "%s", why)
	}
	key = strings.TrimPrefix(u.Path, "/")
	if u.Host == "" || key == "" || strings.HasSuffix(key, "/") || u.RawQuery != "" {
		return "", "", invalid(op, uri, "an object has a bucket and a key: write s3://bucket/key")
	}
	return u.Host, key, nil
}

// Open asks for an object.
func (s *s3Store) Open(ctx context.Context, uri string) (io.ReadCloser, error) {
	bucket, key, err := s3Object("open", uri)
	if err != nil {
		return nil, err
	}
	from, info, _, err := s.client.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, s3Error(ctx, "open", uri, err)
	}
	return &body{from, ctx, uri, info.Size}, nil
}

// Put stores an object in one request.
func (s *s3Store) Put(ctx context.Context, uri string, body io.Reader, size int64) error {
	bucket, key, err := s3Object("put", uri)
	if err != nil {
		return err
	}
	whole := exactly(ctx, uri, body, size)
	if size == 0 { // No request would read the body.
		_, err = io.Copy(io.Discard, whole)
	}
	if err == nil {
		_, err = s.client.Client.PutObject(ctx, bucket, key, whole, size, minio.PutObjectOptions{
			ContentType: "application/octet-stream", DisableMultipart: true,
			DisableContentSha256: size == 0, // The signature by chunks needs one.
		})
	}
	if own, ok := errors.AsType[*Error](err); ok {
		return own // of the body
	}
	if err != nil {
		return s3Error(ctx, "put", uri, err)
	}
	return nil
}

// List lists the objects whose keys begin with the one of the folder.
func (s *s3Store) List(ctx context.Context, uri string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		bucket, key, err := s3Object("list", uri)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for o := range s.client.ListObjectsIter(ctx, bucket, minio.ListObjectsOptions{Prefix: key + "/"}) {
			if o.Err != nil {
				yield(Entry{}, s3Error(ctx, "list", uri, o.Err))
				return
			}
			name := strings.TrimPrefix(o.Key, key+"/")
			if name == "" || strings.Contains(name, "/") {
				continue
			}
			if !yield(Entry{name, o.LastModified}, nil) {
				return
			}
		}
	}
}

func s3Error(ctx context.Context, op, uri string, err error) error {
	kind := Transient
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok && answer.StatusCode != 0 {
		kind = statusKind(answer.StatusCode)
		err = fmt.Errorf("%.64q (HTTP %d)", cmp.Or(answer.Code, "no code"), answer.StatusCode)
	}
	if ctx.Err() != nil {
		kind, err = Transient, context.Cause(ctx)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return &Error{Op: op, URI: Shown(uri), Kind: kind, Err: err}
}
