package nats

import (
	"errors"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"runlog/server/subscriptions/sink/secret"
)

// credentials lets every connection read the credentials again. It tells failed of those that
// cannot be used, because the library reports only the errors of servers.
func credentials(scope secret.Scope, name string, failed func(error)) natsgo.Option {
	noCredentials := func(what string) error {
		err := errors.New("secret " + scope.Path(name) + ": has no " + what + ": it must be a file of NATS credentials (.creds)")
		failed(err)
		return err
	}
	read := func() ([]byte, error) {
		text, err := scope.Read(name)
		if err != nil {
			failed(err)
		}
		return text, err
	}
	return func(o *natsgo.Options) error {
		o.UserJWT = func() (string, error) {
			text, err := read()
			if err != nil {
				return "", err
			}
			jwt, err := nkeys.ParseDecoratedJWT(text)
			if err != nil || jwt == "" {
				return "", noCredentials("user JWT")
			}
			return jwt, nil
		}
		o.SignatureCB = func(nonce []byte) ([]byte, error) {
			text, err := read()
			if err != nil {
				return nil, err
			}
			pair, err := nkeys.ParseDecoratedUserNKey(text)
			if err != nil {
				return nil, noCredentials("user seed")
			}
			defer pair.Wipe()
			return pair.Sign(nonce)
		}
		return nil
	}
}
