// `node openid-provider.js PORT`: a certified OpenID provider, with one client that gets tokens for itself.
import { Provider } from 'oidc-provider'
const port = Number(process.argv[2])
const issuer = `http://127.0.0.1:${port}`
const provider = new Provider(issuer, {
  clients: [{ client_id: 'orders', client_secret: 'the secret of orders', grant_types: ['client_credentials'], redirect_uris: [], response_types: [] }],
  features: {
    clientCredentials: { enabled: true },
    devInteractions: { enabled: false },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => 'urn:kafka',
      getResourceServerInfo: () => ({ scope: 'kafka', audience: 'kafka', accessTokenFormat: 'jwt', accessTokenTTL: 60, jwt: { sign: { alg: 'RS256' } } })
    }
  }
})
provider.listen(port, '127.0.0.1', () => console.log('ready'))
