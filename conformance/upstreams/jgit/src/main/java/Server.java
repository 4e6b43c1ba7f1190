import java.net.InetSocketAddress;
import java.nio.file.Path;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;
import org.eclipse.jgit.http.server.GitServlet;
import org.eclipse.jgit.transport.Daemon;
import org.eclipse.jgit.transport.resolver.FileResolver;

/** Serves the repositories of a folder by JGit, over git:// and HTTP: FOLDER GIT_PORT HTTP_PORT. */
public class Server {
    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        Daemon daemon = new Daemon(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[1])));
        daemon.setRepositoryResolver(new FileResolver<>(folder.toFile(), true));
        daemon.start();

        GitServlet servlet = new GitServlet();
        servlet.setRepositoryResolver(new FileResolver<>(folder.toFile(), true));
        ServletContextHandler handler = new ServletContextHandler();
        handler.addServlet(new ServletHolder(servlet), "/*");
        var server = new org.eclipse.jetty.server.Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[2])));
        server.setHandler(handler);
        server.start();
        server.join();
    }
}
