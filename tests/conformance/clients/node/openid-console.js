// `node openid-console.js PORT REDIRECT_URI LOGOUT_URI`: a certified OpenID provider at which users log in by forms of
// its own; its access tokens are for the brokers.
import { Provider } from 'oidc-provider'
const [port, redirect, logout] = process.argv.slice(2)
const issuer = `http://127.0.0.1:${port}`
const provider = new Provider(issuer, {
  clients: [{ client_id: 'ottla-console', client_secret: 's:cret %+', grant_types: ['authorization_code', 'refresh_token'], redirect_uris: [redirect], post_logout_redirect_uris: [logout], response_types: ['code'] }],
  pkce: { required: () => true },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: ['staff'] }) }),
  claims: { openid: ['sub', 'groups'] },
  conformIdTokenClaims: false,
  issueRefreshToken: async () => true,
  features: {
    devInteractions: { enabled: true },
    rpInitiatedLogout: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => 'urn:kafka',
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: 'openid profile offline_access kafka', audience: 'kafka', accessTokenFormat: 'jwt', accessTokenTTL: 60, jwt: { sign: { alg: 'RS256' } } })
    }
  }
})
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'))
